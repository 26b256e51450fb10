/**
 * Ids whose handlers finished here while it is not sure yet that their marks are stored. Beyond `capacity` the oldest
 * are forgotten, and might then be handled again.
 */
export class Finished {
  readonly #capacity: number;
  readonly #ids = new Set<string>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** How many it remembers. */
  get size(): number {
    return this.#ids.size;
  }

  /** Remembers an id. */
  add(id: string): void {
    this.#ids.delete(id);
    this.#ids.add(id);
    if (this.#ids.size <= this.#capacity) return;
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest);
      break;
    }
  }

  /** Whether it remembers an id. */
  has(id: string): boolean {
    return this.#ids.has(id);
  }

  /** The mark is stored. */
  delete(id: string): void {
    this.#ids.delete(id);
  }
}
