/**
 * Remembers which events a group has handled, for `subscribeExactlyOnce`. By default the bus does. With a store of your
 * own, marks can live in the same database as the effects of your handler.
 */
export interface DedupeStore {
  /** Returns `true` if this group has marked the event as handled. */
  seen(topic: string, group: string, id: string): Promise<boolean> | boolean;
  /** Marks the event as handled by this group, for `ttlMs` milliseconds from now. */
  mark(topic: string, group: string, id: string, ttlMs: number): Promise<void> | void;
}

/** The default time-to-live of a mark: 7 days. */
export const DEFAULT_MARK_TTL_MS = 604_800_000;

/** A {@link DedupeStore} in memory, for tests: its marks end with the process. */
export class MemoryDedupe implements DedupeStore {
  readonly #now: () => number;
  readonly #capacity: number;
  /** When each mark expires. The map is ordered by insertion, so the oldest mark is first. */
  readonly #marks = new Map<string, number>();

  /** Holds at most `capacity` marks and then drops the oldest. `now` returns milliseconds. */
  constructor(capacity = 100_000, now: () => number = Date.now) {
    this.#capacity = capacity;
    this.#now = now;
  }

  /** The number of marks, including expired ones that were not looked up since. */
  get size(): number {
    return this.#marks.size;
  }

  /** Returns `true` if the event is marked. */
  seen(topic: string, group: string, id: string): boolean {
    const key = markKey(topic, group, id);
    const expiresAt = this.#marks.get(key);
    if (expiresAt === undefined) return false;
    if (expiresAt > this.#now()) return true;
    this.#marks.delete(key);
    return false;
  }

  /** Marks the event, or renews its mark. */
  mark(topic: string, group: string, id: string, ttlMs: number = DEFAULT_MARK_TTL_MS): void {
    const key = markKey(topic, group, id);
    this.#marks.delete(key);
    this.#marks.set(key, this.#now() + ttlMs);
    if (this.#marks.size > this.#capacity) {
      for (const oldest of this.#marks.keys()) {
        this.#marks.delete(oldest);
        break;
      }
    }
  }
}

/** Unique, because neither topic nor group contains a space. */
const markKey = (topic: string, group: string, id: string) => `${topic} ${group} ${id}`;
