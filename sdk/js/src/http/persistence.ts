import type { Backoff } from "../backoff.js";
import { isRetryable, PrombusError } from "../errors.js";

/** How often in a row reading may fail without getting any further. */
const FAILURES = 8;

/** Decides whether reading goes on after a failure, and waits before that. */
export class Persistence {
  readonly #backoff: Backoff;
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  constructor(backoff: Backoff, signal: AbortSignal | undefined) {
    this.#backoff = backoff;
    this.#signal = signal;
  }

  /** Something came. */
  progress(): void {
    this.#failures = 0;
  }

  /** Waits before the next attempt, or throws the error if another one would not help. */
  async afterFailure(error: unknown): Promise<void> {
    this.#failures += 1;
    if (!isRetryable(error) || this.#failures > FAILURES) throw error;
    const asked = error instanceof PrombusError ? error.retryAfterMs : undefined;
    await sleep(asked ?? this.#backoff.delayMs(this.#failures), this.#signal);
  }

  /** Waits after an end that was no failure. */
  async afterEnd(): Promise<void> {
    await sleep(this.#backoff.delayMs(1), this.#signal);
  }
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
