import { TimeoutError } from "./errors.js";

/** Limits how long a call may take. */
export interface CallOptions {
  /** Milliseconds after which the call fails with `timeout`. `Infinity` means no limit. */
  timeoutMs?: number | undefined;
  /** Cancels the call. */
  signal?: AbortSignal | undefined;
}

/** Combines a timeout and the caller's signal into one signal, until it is released. */
export class Deadline {
  readonly #controller: AbortController | undefined;
  readonly #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #outer: AbortSignal | undefined;

  /** `what` names the call in the timeout's message. */
  constructor({ timeoutMs, signal }: CallOptions, what: string) {
    const isLimited = timeoutMs !== undefined && Number.isFinite(timeoutMs);
    if (!isLimited && signal === undefined) return;
    const controller = new AbortController();
    this.#controller = controller;
    if (isLimited) {
      const expire = () => controller.abort(new TimeoutError(`${what} timed out after ${timeoutMs} ms`));
      this.#timer = setTimeout(expire, timeoutMs);
    }
    this.#outer = signal;
    if (signal?.aborted) this.#abort();
    else signal?.addEventListener("abort", this.#abort, { once: true });
  }

  /** Aborts with a `TimeoutError`, or with the reason of the caller's signal. `undefined` if there is neither. */
  get signal(): AbortSignal | undefined {
    return this.#controller?.signal;
  }

  /** Stops the timer and stops listening to the caller's signal. */
  release(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
  }

  readonly #abort = () => this.#controller?.abort(this.#outer?.reason);
}
