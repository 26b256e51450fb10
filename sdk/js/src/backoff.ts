/** How long to wait between attempts. */
export interface BackoffOptions {
  /** The most that is waited after the first failure, in milliseconds; doubled with each further one. */
  minMs: number;
  /** The most that is ever waited, in milliseconds. */
  maxMs: number;
}

/** A number from 0 (inclusive) to 1 (exclusive). */
export type Chance = () => number;

/**
 * Exponential back-off with full jitter: anything from nothing to the most, so that clients that lost their server
 * together do not come back together.
 */
export class Backoff {
  readonly #options: BackoffOptions;
  readonly #chance: Chance;

  constructor(options: BackoffOptions, chance: Chance) {
    this.#options = options;
    this.#chance = chance;
  }

  /** How long to wait after the `failures`-th failure in a row, from 1. */
  delayMs(failures: number): number {
    const { minMs, maxMs } = this.#options;
    return this.#chance() * Math.min(maxMs, minMs * 2 ** (failures - 1));
  }
}
