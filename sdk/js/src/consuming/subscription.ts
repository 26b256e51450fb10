import type { Connection } from "../connection.js";
import { ClosedError, isRetryable, type PrombusError } from "../errors.js";
import type { Binding } from "../session/binding.js";
import type { Consumer } from "./consumer.js";

/** How to stop. */
export interface StopOptions {
  /** Milliseconds that running handlers have to finish before their signals abort. 30,000 if absent. */
  timeoutMs?: number;
}

const STOP_TIMEOUT_MS = 30_000;

/** A running subscription. It survives connections, and ends by {@link Subscription.stop} or by a final refusal. */
export class Subscription {
  /** Resolves when it is over: with the error that ended it, or with nothing if it was stopped. */
  readonly ended: Promise<PrombusError | undefined>;
  readonly #connection: Connection;
  readonly #binding: Binding;
  readonly #consumer: Consumer<never> | Consumer<unknown>;
  #stopped: Promise<void> | undefined;

  /** @internal */
  constructor(connection: Connection, binding: Binding, consumer: Consumer<never> | Consumer<unknown>) {
    this.#connection = connection;
    this.#binding = binding;
    this.#consumer = consumer;
    this.ended = consumer.ended;
  }

  /** What it consumes. */
  get topic(): string {
    return this.#binding.topic;
  }

  /** For whom. */
  get group(): string {
    return this.#binding.group;
  }

  /** Whether it rests. */
  get isPaused(): boolean {
    return this.#binding.paused;
  }

  /**
   * Lets it rest: no handler begins until {@link Subscription.resume}. What was lent already is kept, and its lease
   * extended. It stays paused through lost connections.
   */
  async pause(): Promise<void> {
    this.#consumer.pause();
    await this.#through(this.#connection.pause(this.#binding));
  }

  /** Goes on. */
  async resume(): Promise<void> {
    this.#consumer.resume();
    await this.#through(this.#connection.resume(this.#binding));
  }

  /** Ends it: no handler begins any more, running ones finish and their events are acknowledged. */
  stop(options: StopOptions = {}): Promise<void> {
    this.#stopped ??= this.#stop(options.timeoutMs ?? STOP_TIMEOUT_MS);
    return this.#stopped;
  }

  /** The same as {@link Subscription.stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(timeoutMs: number): Promise<void> {
    const drained = this.#consumer.drain();
    // Nothing more is lent, while what runs keeps its leases: UNSUBSCRIBE would end those.
    this.pause().catch(() => undefined);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([drained, late]);
    clearTimeout(timer);
    this.#consumer.abort(new ClosedError("the subscription is stopped"));
    await this.#through(this.#connection.unbind(this.#binding)).catch(() => undefined);
    this.#consumer.over(undefined);
  }

  /** A connection that is lost meanwhile is no failure: the next one is told anyway. */
  async #through(asked: Promise<void>): Promise<void> {
    try {
      await asked;
    } catch (error) {
      if (!isRetryable(error)) throw error;
    }
  }
}
