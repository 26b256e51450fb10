import type { Connection } from "../connection.js";
import { type CallOptions, Deadline } from "../deadline.js";
import { BadAnswerError, isTooMuchTogether } from "../errors.js";
import type { EventOptions, EventToPublish, Published } from "../event.js";
import { type OkFrame, wireOptions } from "../session/frames.js";
import { chunks, encodeEvent } from "./chunks.js";
import { encodePayload, requireFits } from "./frame-size.js";
import type { Window } from "./window.js";

/** How to publish. */
export interface PublishCallOptions extends CallOptions {
  /**
   * Whether refusals that pass (`rate_limited`, `storage_unavailable`, `shutting_down`) are tried again, which is so
   * unless this is `false`.
   */
  retry?: boolean;
}

/** How to publish one event, and what to say about it. */
export interface PublishOptions extends EventOptions, PublishCallOptions {}

/** The most events that the bus takes in one frame. */
const EVENTS_A_FRAME = 1000;
/** Frames of one batch that are under way together. */
const FRAMES_OF_A_BATCH = 8;

/** Publishes within a window. Ids are made here, so that a frame that had no answer is sent again and stored once. */
export class Publisher {
  readonly #connection: Connection;
  readonly #window: Window;
  readonly #makeId: () => string;
  readonly #maxFrameBytes: number;
  readonly #timeoutMs: number;
  /** Fewer once the bus has said that its limits never admit as many together. */
  #eventsAFrame = EVENTS_A_FRAME;

  constructor(connection: Connection, window: Window, makeId: () => string, maxFrameBytes: number, timeoutMs: number) {
    this.#connection = connection;
    this.#window = window;
    this.#makeId = makeId;
    this.#maxFrameBytes = maxFrameBytes;
    this.#timeoutMs = timeoutMs;
  }

  async publish(topic: string, payload: unknown, options: PublishOptions): Promise<Published> {
    const opts = wireOptions({ ...options, id: options.id ?? this.#makeId() });
    const head = JSON.stringify({ op: "PUBLISH", topic, opts });
    const body = `${head.slice(0, -1)},"payload":${encodePayload(payload)}}`;
    const { id, seq, duplicate = false } = await this.#send(topic, body, options);
    if (id === undefined || seq === undefined) throw new BadAnswerError("the answer to PUBLISH has no id and seq");
    return { id, seq, duplicate };
  }

  async publishBatch(
    topic: string,
    events: Iterable<EventToPublish>,
    options: PublishCallOptions,
  ): Promise<Published[]> {
    const makeId = this.#makeId;
    const encoded = (function* () {
      for (const event of events) yield encodeEvent(event, makeId);
    })();
    const deadline = new Deadline(options, `publishing a batch to ${topic}`);
    const call = { retry: options.retry ?? true, signal: deadline.signal };
    const published: Published[] = [];
    const underWay: Promise<Published[]>[] = [];
    try {
      for (const chunk of chunks(encoded, () => this.#eventsAFrame, this.#maxFrameBytes)) {
        underWay.push(this.#publishChunk(topic, chunk, call));
        if (underWay.length === FRAMES_OF_A_BATCH) published.push(...(await (underWay[0] as Promise<Published[]>)));
        if (underWay.length === FRAMES_OF_A_BATCH) underWay.shift();
      }
      for (const results of await Promise.all(underWay)) published.push(...results);
      return published;
    } finally {
      // After an error the others are still waited for: who is told about it may rely on nothing coming behind.
      await Promise.allSettled(underWay);
      deadline.release();
    }
  }

  async #publishChunk(topic: string, events: string[], call: PublishCallOptions): Promise<Published[]> {
    const body = `{"op":"PUBLISH","topic":${JSON.stringify(topic)},"events":[${events.join(",")}]}`;
    try {
      const { results } = await this.#send(topic, body, call);
      if (results?.length !== events.length) throw new BadAnswerError("the answer to PUBLISH has not one result each");
      return results.map(({ id, seq, duplicate = false }) => ({ id, seq, duplicate }));
    } catch (error) {
      if (!isTooMuchTogether(error) || events.length === 1) throw error;
      const half = Math.ceil(events.length / 2);
      this.#eventsAFrame = Math.min(this.#eventsAFrame, half);
      const first = await this.#publishChunk(topic, events.slice(0, half), call);
      return first.concat(await this.#publishChunk(topic, events.slice(half), call));
    }
  }

  async #send(topic: string, body: string, options: PublishCallOptions): Promise<OkFrame> {
    requireFits(body, this.#maxFrameBytes);
    const { timeoutMs = this.#timeoutMs, signal: calledOff } = options;
    const deadline = new Deadline({ timeoutMs, signal: calledOff }, `publishing to ${topic}`);
    const request = { lane: `publish ${topic}`, survives: true, retries: options.retry ?? true };
    const { signal } = deadline;
    try {
      return await this.#window.run(body.length, signal, () => this.#connection.ask(body, request, signal));
    } finally {
      deadline.release();
    }
  }
}
