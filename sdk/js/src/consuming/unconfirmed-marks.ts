/**
 * Ids of events whose handlers finished in this process, but whose marks may not be stored yet. Beyond `capacity` the
 * oldest ids are forgotten, and their events may be handled again.
 */
export class UnconfirmedMarks {
  readonly #capacity: number;
  readonly #ids = new Set<string>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#ids.size;
  }

  add(id: string): void {
    this.#ids.delete(id);
    this.#ids.add(id);
    if (this.#ids.size <= this.#capacity) return;
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest);
      break;
    }
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  /** Forgets an id because its mark is stored. */
  delete(id: string): void {
    this.#ids.delete(id);
  }
}
