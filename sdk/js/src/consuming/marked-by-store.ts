import type { DedupeStore } from "../dedupe.js";
import type { BusEvent } from "../event.js";
import type { Finished } from "./finished.js";
import type { Operations } from "./operations.js";
import type { Strategy } from "./strategy.js";

/** Skip what the user's own store has marked, handle, mark there, then acknowledge. */
export class MarkedByStore implements Strategy<void> {
  readonly #store: DedupeStore;
  readonly #group: string;
  readonly #ttlMs: number;
  readonly #operations: Operations;
  readonly #finished: Finished;

  constructor(store: DedupeStore, group: string, ttlMs: number, operations: Operations, finished: Finished) {
    this.#store = store;
    this.#group = group;
    this.#ttlMs = ttlMs;
    this.#operations = operations;
    this.#finished = finished;
  }

  async wasDone({ topic, id }: BusEvent): Promise<boolean> {
    return this.#store.seen(topic, this.#group, id);
  }

  remembers(id: string): boolean {
    return this.#finished.has(id);
  }

  async finish(event: BusEvent): Promise<void> {
    await this.finishUnleased(event);
    await this.#operations.ack(event.id);
  }

  async finishUnleased({ topic, id }: BusEvent): Promise<void> {
    // If marking fails, the event comes again: then only the mark is tried again, not the handler.
    this.#finished.add(id);
    await this.#store.mark(topic, this.#group, id, this.#ttlMs);
    this.#finished.delete(id);
  }
}
