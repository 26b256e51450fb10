/** The bounds of an exponential back-off. */
export interface BackoffOptions {
  /** The longest delay after the first failure, in milliseconds. It doubles with each further failure. */
  minMs: number;
  /** The longest delay of all, in milliseconds. */
  maxMs: number;
}

/** Returns a random number from 0 (inclusive) to 1 (exclusive), as `Math.random` does. */
export type RandomSource = () => number;

/** Exponential back-off with full jitter, so that clients that lost their server together do not return together. */
export class Backoff {
  readonly #options: BackoffOptions;
  readonly #random: RandomSource;

  constructor(options: BackoffOptions, random: RandomSource) {
    this.#options = options;
    this.#random = random;
  }

  /** Returns the delay after a number of consecutive failures, at least 1. */
  delayMs(failures: number): number {
    const { minMs, maxMs } = this.#options;
    return this.#random() * Math.min(maxMs, minMs * 2 ** (failures - 1));
  }
}
