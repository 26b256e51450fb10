/**
 * Remembers which events are done, for `subscribeExactlyOnce`. Without one the bus remembers. With one of your own the
 * marks can be kept beside the effect of your handler, in the same database.
 */
export interface DedupeStore {
  /** Whether the event is marked as done by this group. */
  seen(topic: string, group: string, id: string): Promise<boolean> | boolean;
  /** Marks the event as done by this group, for `ttlMs` milliseconds from now. */
  mark(topic: string, group: string, id: string, ttlMs: number): Promise<void> | void;
}

/** How long a mark stays if nobody says otherwise: 7 days. */
export const DEFAULT_MARK_TTL_MS = 604_800_000;

/** A store in memory, for tests: it forgets everything with its process. */
export class MemoryDedupe implements DedupeStore {
  readonly #now: () => number;
  readonly #capacity: number;
  /** When each mark ends, the oldest marks first. */
  readonly #marks = new Map<string, number>();

  /** Holds at most `capacity` marks, and drops the oldest beyond. `now` is in milliseconds. */
  constructor(capacity = 100_000, now: () => number = Date.now) {
    this.#capacity = capacity;
    this.#now = now;
  }

  /** How many marks it holds, those included whose time is over and which nobody asked for since. */
  get size(): number {
    return this.#marks.size;
  }

  /** Whether the event is marked. */
  seen(topic: string, group: string, id: string): boolean {
    const name = markName(topic, group, id);
    const end = this.#marks.get(name);
    if (end === undefined) return false;
    if (end > this.#now()) return true;
    this.#marks.delete(name);
    return false;
  }

  /** Marks the event; marking again moves the time. */
  mark(topic: string, group: string, id: string, ttlMs: number = DEFAULT_MARK_TTL_MS): void {
    const name = markName(topic, group, id);
    this.#marks.delete(name);
    this.#marks.set(name, this.#now() + ttlMs);
    if (this.#marks.size > this.#capacity) {
      for (const oldest of this.#marks.keys()) {
        this.#marks.delete(oldest);
        break;
      }
    }
  }
}

/** Neither topic nor group contains a space. */
const markName = (topic: string, group: string, id: string) => `${topic} ${group} ${id}`;
