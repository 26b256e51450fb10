import type { Connection } from "../connection.js";
import { ClosedError, isRetryable, type PrombusError } from "../errors.js";
import type { Binding } from "../session/binding.js";
import type { Consumer } from "./consumer.js";

/** Options of {@link Subscription.stop}. */
export interface StopOptions {
  /** Milliseconds that running handlers have to finish before their signals abort. Default: 30,000. */
  timeoutMs?: number;
}

const STOP_TIMEOUT_MS = 30_000;

/** A running subscription. Survives reconnects, and ends with {@link Subscription.stop} or a permanent refusal. */
export class Subscription {
  /** Resolves when the subscription ends: with the error that ended it, or with `undefined` if it was stopped. */
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

  /** The topic that is consumed. */
  get topic(): string {
    return this.#binding.topic;
  }

  /** The consumer group. */
  get group(): string {
    return this.#binding.group;
  }

  /** True between {@link Subscription.pause} and {@link Subscription.resume}. */
  get isPaused(): boolean {
    return this.#binding.paused;
  }

  /**
   * Starts no handler until {@link Subscription.resume}. Events that were already delivered keep their leases, which the
   * client extends. The subscription stays paused across reconnects.
   */
  async pause(): Promise<void> {
    this.#consumer.pause();
    await this.#ignoreDisconnect(this.#connection.pause(this.#binding));
  }

  /** Resumes deliveries and handlers. */
  async resume(): Promise<void> {
    this.#consumer.resume();
    await this.#ignoreDisconnect(this.#connection.resume(this.#binding));
  }

  /** Ends the subscription: starts no more handlers, lets the running ones finish, and acknowledges their events. */
  stop(options: StopOptions = {}): Promise<void> {
    this.#stopped ??= this.#stop(options.timeoutMs ?? STOP_TIMEOUT_MS);
    return this.#stopped;
  }

  /** Calls {@link Subscription.stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(timeoutMs: number): Promise<void> {
    const drained = this.#consumer.drain();
    // PAUSE stops deliveries but keeps the leases of running handlers; UNSUBSCRIBE would end them.
    this.pause().catch(() => undefined);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([drained, timeout]);
    clearTimeout(timer);
    this.#consumer.abort(new ClosedError("the subscription was stopped"));
    await this.#ignoreDisconnect(this.#connection.unbind(this.#binding)).catch(() => undefined);
    this.#consumer.end(undefined);
  }

  /** A lost connection is no failure: the next one starts in the new state. */
  async #ignoreDisconnect(request: Promise<void>): Promise<void> {
    try {
      await request;
    } catch (error) {
      if (!isRetryable(error)) throw error;
    }
  }
}
