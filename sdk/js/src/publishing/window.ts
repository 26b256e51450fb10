import { QueueFullError } from "../errors.js";

/** How much may be under way. */
export interface WindowLimits {
  /** Frames that may be unanswered at a time. */
  frames: number;
  /** Characters of frames that may be unanswered at a time. A single frame may be larger. */
  characters: number;
  /** Callers that may wait for room; one more is refused with `queue_full`. */
  waiting: number;
}

interface Waiter {
  readonly size: number;
  readonly begin: () => void;
}

/** Room for what is under way. Who finds none waits, in order; how many may wait is limited, too. */
export class Window {
  readonly #limits: WindowLimits;
  readonly #waiters: Waiter[] = [];
  readonly #onEmpty: (() => void)[] = [];
  #frames = 0;
  #characters = 0;

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  /** Frames that are under way. */
  get frames(): number {
    return this.#frames;
  }

  /** Callers that wait for room. */
  get waiting(): number {
    return this.#waiters.length;
  }

  /**
   * Begins `work`, which takes the room of a frame of `size` characters until it settles; at once if there is room, so
   * that work begins in the order of the calls.
   */
  run<T>(size: number, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    const begin = () => {
      this.#frames += 1;
      this.#characters += size;
      return work().finally(() => this.#leave(size));
    };
    if (this.#waiters.length === 0 && this.#hasRoom(size)) return begin();
    if (this.#waiters.length >= this.#limits.waiting) {
      const message = `${this.#limits.waiting} frames wait to be sent already: await what you publish`;
      return Promise.reject(new QueueFullError(message));
    }
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
        this.#admit();
        reject(signal?.reason);
      };
      const waiter: Waiter = {
        size,
        begin: () => {
          signal?.removeEventListener("abort", giveUp);
          begin().then(resolve, reject);
        },
      };
      this.#waiters.push(waiter);
      signal?.addEventListener("abort", giveUp, { once: true });
    });
  }

  /** Resolves when nothing is under way and nobody waits, or when so much time has passed. */
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
    if (this.#frames === 0) for (const tell of this.#onEmpty.splice(0)) tell();
  }

  #admit(): void {
    for (let next = this.#waiters[0]; next !== undefined && this.#hasRoom(next.size); next = this.#waiters[0]) {
      this.#waiters.shift();
      next.begin();
    }
  }
}
