import type { Connection } from "../connection.js";
import { type CallOptions, Deadline } from "../deadline.js";
import { BadAnswerError, exceedsRateCapacity } from "../errors.js";
import type { EventOptions, EventToPublish, Published } from "../event.js";
import { type OkFrame, wireOptions } from "../session/frames.js";
import { chunks, encodeEvent } from "./chunks.js";
import { encodePayload, requireFits } from "./frame-size.js";
import type { SendWindow } from "./send-window.js";

/** Options of a call that publishes. */
export interface PublishCallOptions extends CallOptions {
  /** Retries after temporary refusals (`rate_limited`, `storage_unavailable`, `shutting_down`). Default: `true`. */
  retry?: boolean;
}

/** Options of `publish`. */
export interface PublishOptions extends EventOptions, PublishCallOptions {}

/** The largest number of events that the bus accepts in one frame. */
const MAX_EVENTS_PER_FRAME = 1000;
/** The number of frames of one batch that are in flight at once. */
const MAX_FRAMES_IN_FLIGHT = 8;

/** Publishes events within a window. Assigns their ids, so that the bus stores an event once however often it is sent. */
export class Publisher {
  readonly #connection: Connection;
  readonly #window: SendWindow;
  readonly #nextId: () => string;
  readonly #maxFrameBytes: number;
  readonly #timeoutMs: number;
  /** Shrinks when a frame exceeds the whole capacity of a rate limit. */
  #eventsPerFrame = MAX_EVENTS_PER_FRAME;

  constructor(
    connection: Connection,
    window: SendWindow,
    nextId: () => string,
    maxFrameBytes: number,
    timeoutMs: number,
  ) {
    this.#connection = connection;
    this.#window = window;
    this.#nextId = nextId;
    this.#maxFrameBytes = maxFrameBytes;
    this.#timeoutMs = timeoutMs;
  }

  async publish(topic: string, payload: unknown, options: PublishOptions): Promise<Published> {
    const opts = wireOptions({ ...options, id: options.id ?? this.#nextId() });
    const head = JSON.stringify({ op: "PUBLISH", topic, opts });
    const body = `${head.slice(0, -1)},"payload":${encodePayload(payload)}}`;
    const { id, seq, duplicate = false } = await this.#send(topic, body, options);
    if (id === undefined || seq === undefined) throw new BadAnswerError("the answer to PUBLISH lacks id or seq");
    return { id, seq, duplicate };
  }

  async publishBatch(
    topic: string,
    events: Iterable<EventToPublish>,
    options: PublishCallOptions,
  ): Promise<Published[]> {
    const nextId = this.#nextId;
    const encoded = (function* () {
      for (const event of events) yield encodeEvent(event, nextId);
    })();
    const deadline = new Deadline(options, `publishing a batch to ${topic}`);
    const call = { retry: options.retry ?? true, signal: deadline.signal };
    const published: Published[] = [];
    const inFlight: Promise<Published[]>[] = [];
    try {
      for (const chunk of chunks(encoded, () => this.#eventsPerFrame, this.#maxFrameBytes)) {
        inFlight.push(this.#publishChunk(topic, chunk, call));
        if (inFlight.length < MAX_FRAMES_IN_FLIGHT) continue;
        published.push(...(await (inFlight[0] as Promise<Published[]>)));
        inFlight.shift();
      }
      for (const results of await Promise.all(inFlight)) published.push(...results);
      return published;
    } finally {
      // After an error, wait for the other frames: nothing is stored after the caller sees the error.
      await Promise.allSettled(inFlight);
      deadline.release();
    }
  }

  async #publishChunk(topic: string, events: string[], call: PublishCallOptions): Promise<Published[]> {
    const body = `{"op":"PUBLISH","topic":${JSON.stringify(topic)},"events":[${events.join(",")}]}`;
    try {
      const { results } = await this.#send(topic, body, call);
      if (results?.length !== events.length) throw new BadAnswerError("the answer to PUBLISH lacks results");
      return results.map(({ id, seq, duplicate = false }) => ({ id, seq, duplicate }));
    } catch (error) {
      if (!exceedsRateCapacity(error) || events.length === 1) throw error;
      const half = Math.ceil(events.length / 2);
      this.#eventsPerFrame = Math.min(this.#eventsPerFrame, half);
      const first = await this.#publishChunk(topic, events.slice(0, half), call);
      return first.concat(await this.#publishChunk(topic, events.slice(half), call));
    }
  }

  async #send(topic: string, body: string, options: PublishCallOptions): Promise<OkFrame> {
    requireFits(body, this.#maxFrameBytes);
    const { timeoutMs = this.#timeoutMs, signal: callerSignal } = options;
    const deadline = new Deadline({ timeoutMs, signal: callerSignal }, `publishing to ${topic}`);
    const request = { lane: `publish ${topic}`, resend: true, retry: options.retry ?? true };
    const { signal } = deadline;
    try {
      return await this.#window.run(body.length, signal, () => this.#connection.ask(body, request, signal));
    } finally {
      deadline.release();
    }
  }
}
