/** The longest delay that every platform's timers support. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A timer that is set to the time of the next thing to do, over and over. */
export class WakeupTimer {
  readonly #now: () => number;
  readonly #wake: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #at = Number.POSITIVE_INFINITY;

  constructor(now: () => number, wake: () => void) {
    this.#now = now;
    this.#wake = wake;
  }

  /**
   * Calls back at `at`, or not at all if that is `undefined`. An earlier call-back that is already set stays: waking too
   * early is cheaper than setting a timer for every frame.
   */
  set(at = Number.POSITIVE_INFINITY): void {
    if (at >= this.#at && at !== Number.POSITIVE_INFINITY) return;
    clearTimeout(this.#timer);
    this.#at = at;
    if (at === Number.POSITIVE_INFINITY) return;
    const delay = Math.min(Math.max(0, Math.ceil(at - this.#now())), LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => {
      this.#at = Number.POSITIVE_INFINITY;
      this.#wake();
    }, delay);
  }
}
