import { TimeoutError } from "./errors.js";

/** How long something may take, and who may call it off. */
export interface CallOptions {
  /** Milliseconds after which it fails with `timeout`. `Infinity` is no end. */
  timeoutMs?: number | undefined;
  /** Calls it off. */
  signal?: AbortSignal | undefined;
}

/** A signal that aborts by the caller's signal or when the time is over, until it is released. */
export class Deadline {
  readonly #controller: AbortController | undefined;
  readonly #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #outer: AbortSignal | undefined;

  constructor({ timeoutMs, signal }: CallOptions, what: string) {
    const ends = timeoutMs !== undefined && Number.isFinite(timeoutMs);
    if (!ends && signal === undefined) return;
    const controller = new AbortController();
    this.#controller = controller;
    if (ends) {
      const late = () => controller.abort(new TimeoutError(`${what}: not done in ${timeoutMs} ms`));
      this.#timer = setTimeout(late, timeoutMs);
    }
    this.#outer = signal;
    if (signal?.aborted) this.#pass();
    else signal?.addEventListener("abort", this.#pass, { once: true });
  }

  /** Aborts with a `TimeoutError`, or with the reason of the caller's signal. Absent where neither was asked for. */
  get signal(): AbortSignal | undefined {
    return this.#controller?.signal;
  }

  /** It is over: the timer and the caller's signal are let go. */
  release(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#pass);
  }

  readonly #pass = () => this.#controller?.abort(this.#outer?.reason);
}
