import type { Connection } from "../connection.js";
import { isTooMuchTogether } from "../errors.js";
import { requireFits } from "../publishing/frame-size.js";
import { encodeFrame, type OkFrame } from "../session/frames.js";
import { Gatherer } from "./gatherer.js";

/** Ids in one frame: the most for marks; an ACK takes more, but with long ids the frame might become too large. */
const IDS_OF_A_FRAME = 1000;

/** What a consumer asks of the bus for one topic and group. What may go together does. */
export class Operations {
  readonly #connection: Connection;
  readonly #names: { topic: string; group: string };
  readonly #lane: string;
  readonly #maxFrameBytes: number;
  readonly #ack: Gatherer<void>;
  readonly #seen: Gatherer<Set<string>>;
  readonly #mark: Gatherer<void>;
  readonly #ackMarked: Gatherer<void>;

  constructor(connection: Connection, topic: string, group: string, ttlMs: number, maxFrameBytes: number) {
    this.#connection = connection;
    this.#maxFrameBytes = maxFrameBytes;
    this.#names = { topic, group };
    this.#lane = `${topic} ${group}`;
    this.#ack = new Gatherer(IDS_OF_A_FRAME, isTooMuchTogether, async (ids) => {
      await this.#ask("ACK", { ids });
    });
    this.#ackMarked = new Gatherer(IDS_OF_A_FRAME, isTooMuchTogether, async (ids) => {
      await this.#ask("ACK", { ids, mark: { ttl_ms: ttlMs } });
    });
    this.#seen = new Gatherer(IDS_OF_A_FRAME, isTooMuchTogether, async (ids) => {
      const { seen = [] } = await this.#ask("SEEN", { ids }, true);
      return new Set(seen);
    });
    this.#mark = new Gatherer(IDS_OF_A_FRAME, isTooMuchTogether, async (ids) => {
      await this.#ask("MARK", { ids, ttl_ms: ttlMs }, true);
    });
  }

  /** Acknowledges. */
  ack(id: string): Promise<void> {
    return this.#ack.add(id);
  }

  /** Acknowledges and marks, in one commit. */
  ackMarked(id: string): Promise<void> {
    return this.#ackMarked.add(id);
  }

  /** Whether an event is marked. */
  async seen(id: string): Promise<boolean> {
    return (await this.#seen.add(id)).has(id);
  }

  /** Marks an event, also if the connection breaks meanwhile. */
  mark(id: string): Promise<void> {
    return this.#mark.add(id);
  }

  /** Acknowledges, marks and publishes, in one commit. */
  async ackPublishing(id: string, publish: unknown[], ttlMs: number): Promise<void> {
    await this.#ask("ACK", { id, mark: { ttl_ms: ttlMs }, publish });
  }

  /** Gives an event back. */
  async nack(id: string, members: { reason: string; delay_ms: number | undefined }): Promise<void> {
    await this.#ask("NACK", { id, ...members });
  }

  /** Extends a lease to end `ms` from now. */
  async extend(id: string, ms: number): Promise<void> {
    await this.#ask("MODACK", { id, extend_ms: ms });
  }

  async #ask(op: string, members: Record<string, unknown>, survives = false): Promise<OkFrame> {
    const body = encodeFrame({ op, ...this.#names, ...members });
    requireFits(body, this.#maxFrameBytes);
    // One lane for each kind: an acknowledgement that waits for tokens must not keep leases from being extended.
    return this.#connection.ask(body, { lane: `${op} ${this.#lane}`, survives, retries: true });
  }
}
