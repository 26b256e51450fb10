import type { Connection } from "../connection.js";
import { exceedsRateCapacity } from "../errors.js";
import { requireFits } from "../publishing/frame-size.js";
import { encodeFrame, type OkFrame } from "../session/frames.js";
import type { NackMembers } from "./handler.js";
import { IdBatcher } from "./id-batcher.js";

/** The largest number of ids in a MARK. An ACK may have more, but with long ids its frame could become too large. */
const IDS_PER_FRAME = 1000;

/** The operations of one consumer group on one topic. Acknowledgements and marks are batched. */
export class GroupOperations {
  readonly #connection: Connection;
  readonly #topic: string;
  readonly #maxFrameBytes: number;
  readonly #ack: IdBatcher<void>;
  readonly #seen: IdBatcher<Set<string>>;
  readonly #mark: IdBatcher<void>;
  readonly #ackAndMark: IdBatcher<void>;

  constructor(
    connection: Connection,
    topic: string,
    readonly group: string,
    ttlMs: number,
    maxFrameBytes: number,
  ) {
    this.#connection = connection;
    this.#topic = topic;
    this.#maxFrameBytes = maxFrameBytes;
    this.#ack = new IdBatcher(IDS_PER_FRAME, exceedsRateCapacity, async (ids) => {
      await this.#ask("ACK", { ids });
    });
    this.#ackAndMark = new IdBatcher(IDS_PER_FRAME, exceedsRateCapacity, async (ids) => {
      await this.#ask("ACK", { ids, mark: { ttl_ms: ttlMs } });
    });
    this.#seen = new IdBatcher(IDS_PER_FRAME, exceedsRateCapacity, async (ids) => {
      const { seen = [] } = await this.#ask("SEEN", { ids }, true);
      return new Set(seen);
    });
    this.#mark = new IdBatcher(IDS_PER_FRAME, exceedsRateCapacity, async (ids) => {
      await this.#ask("MARK", { ids, ttl_ms: ttlMs }, true);
    });
  }

  ack(id: string): Promise<void> {
    return this.#ack.add(id);
  }

  /** Acknowledges and marks an event in one commit. */
  ackAndMark(id: string): Promise<void> {
    return this.#ackAndMark.add(id);
  }

  /** Returns `true` if the event is marked. */
  async seen(id: string): Promise<boolean> {
    return (await this.#seen.add(id)).has(id);
  }

  /** Marks an event, also across a reconnect. */
  mark(id: string): Promise<void> {
    return this.#mark.add(id);
  }

  /** Acknowledges an event, marks it and publishes others in one commit. */
  async ackAndPublish(id: string, publish: unknown[], ttlMs: number): Promise<void> {
    await this.#ask("ACK", { id, mark: { ttl_ms: ttlMs }, publish });
  }

  async nack(id: string, members: NackMembers): Promise<void> {
    await this.#ask("NACK", { id, ...members });
  }

  /** Extends a lease to end `ms` from now. */
  async extend(id: string, ms: number): Promise<void> {
    await this.#ask("MODACK", { id, extend_ms: ms });
  }

  async #ask(op: string, members: Record<string, unknown>, resend = false): Promise<OkFrame> {
    const body = encodeFrame({ op, topic: this.#topic, group: this.group, ...members });
    requireFits(body, this.#maxFrameBytes);
    // Each operation has its own lane: an acknowledgement that waits for a rate limit must not delay lease extensions.
    return this.#connection.ask(body, { lane: `${op} ${this.#topic} ${this.group}`, resend, retry: true });
  }
}
