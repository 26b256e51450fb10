import { QueueFullError } from "../errors.js";

/** The limits of a {@link SendWindow}. */
export interface WindowLimits {
  /** The largest number of unanswered frames. */
  frames: number;
  /** The largest total size of unanswered frames, in characters. A single frame may be larger. */
  characters: number;
  /** The number of callers that may wait for room; one more fails with `queue_full`. */
  waiting: number;
}

interface Waiter {
  readonly size: number;
  readonly start: () => void;
}

/** Limits the unanswered frames. Callers that find no room wait in order, up to a limit. */
export class SendWindow {
  readonly #limits: WindowLimits;
  readonly #waiters: Waiter[] = [];
  readonly #onEmpty: (() => void)[] = [];
  #frames = 0;
  #characters = 0;

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  /** The number of unanswered frames. */
  get frames(): number {
    return this.#frames;
  }

  /** The number of callers that wait for room. */
  get waiting(): number {
    return this.#waiters.length;
  }

  /**
   * Starts `work`, which occupies the room of a frame of `size` characters until it settles. Starts it synchronously if
   * there is room, so that work starts in the order of the calls.
   */
  run<T>(size: number, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    const start = () => {
      this.#frames += 1;
      this.#characters += size;
      return work().finally(() => this.#leave(size));
    };
    if (this.#waiters.length === 0 && this.#hasRoom(size)) return start();
    if (this.#waiters.length >= this.#limits.waiting) {
      const message = `${this.#limits.waiting} publishes are already waiting: await your publishes`;
      return Promise.reject(new QueueFullError(message));
    }
    return new Promise((resolve, reject) => {
      const cancel = () => {
        this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
        this.#admit();
        reject(signal?.reason);
      };
      const waiter: Waiter = {
        size,
        start: () => {
          signal?.removeEventListener("abort", cancel);
          start().then(resolve, reject);
        },
      };
      this.#waiters.push(waiter);
      signal?.addEventListener("abort", cancel, { once: true });
    });
  }

  /** Resolves when no frame is unanswered and no caller waits, or after `timeoutMs`. */
  empty(timeoutMs: number): Promise<void> {
    if (this.#frames === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#onEmpty.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #hasRoom(size: number): boolean {
    if (this.#frames === 0) return true;
    return this.#frames < this.#limits.frames && this.#characters + size <= this.#limits.characters;
  }

  #leave(size: number): void {
    this.#frames -= 1;
    this.#characters -= size;
    this.#admit();
    if (this.#frames === 0) for (const callback of this.#onEmpty.splice(0)) callback();
  }

  #admit(): void {
    for (let next = this.#waiters[0]; next !== undefined && this.#hasRoom(next.size); next = this.#waiters[0]) {
      this.#waiters.shift();
      next.start();
    }
  }
}
