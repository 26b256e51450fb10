import type { Backoff } from "../backoff.js";
import { isRetryable, PrombusError } from "../errors.js";

/** The number of consecutive failures without progress after which a read fails. */
const MAX_FAILURES = 8;

/** Decides whether a read is retried after a failure, and waits before the next attempt. */
export class ReadRetry {
  readonly #backoff: Backoff;
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  constructor(backoff: Backoff, signal: AbortSignal | undefined) {
    this.#backoff = backoff;
    this.#signal = signal;
  }

  /** Records that the read made progress. */
  progress(): void {
    this.#failures = 0;
  }

  /** Waits before the next attempt. Throws the error if retrying does not help. */
  async afterFailure(error: unknown): Promise<void> {
    this.#failures += 1;
    if (!isRetryable(error) || this.#failures > MAX_FAILURES) throw error;
    const retryAfterMs = error instanceof PrombusError ? error.retryAfterMs : undefined;
    await sleep(retryAfterMs ?? this.#backoff.delayMs(this.#failures), this.#signal);
  }

  /** Waits before the next attempt after the server ended a stream. */
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
