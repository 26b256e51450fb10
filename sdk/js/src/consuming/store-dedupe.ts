import type { DedupeStore } from "../dedupe.js";
import type { BusEvent } from "../event.js";
import type { GroupOperations } from "./group-operations.js";
import type { DeliverySemantics } from "./semantics.js";
import type { UnconfirmedMarks } from "./unconfirmed-marks.js";

/** Exactly once with marks in the user's store: skips marked events; marks the others and then acknowledges them. */
export class StoreDedupe implements DeliverySemantics<void> {
  readonly #store: DedupeStore;
  readonly #ttlMs: number;
  readonly #operations: GroupOperations;
  readonly #unconfirmed: UnconfirmedMarks;

  constructor(store: DedupeStore, ttlMs: number, operations: GroupOperations, unconfirmed: UnconfirmedMarks) {
    this.#store = store;
    this.#ttlMs = ttlMs;
    this.#operations = operations;
    this.#unconfirmed = unconfirmed;
  }

  async isMarked({ topic, id }: BusEvent): Promise<boolean> {
    return this.#store.seen(topic, this.#operations.group, id);
  }

  finishedHere(id: string): boolean {
    return this.#unconfirmed.has(id);
  }

  async complete(event: BusEvent): Promise<void> {
    await this.completeWithoutLease(event);
    await this.#operations.ack(event.id);
  }

  async completeWithoutLease({ topic, id }: BusEvent): Promise<void> {
    // If marking fails, the event is redelivered; then only the mark is retried, not the handler.
    this.#unconfirmed.add(id);
    await this.#store.mark(topic, this.#operations.group, id, this.#ttlMs);
    this.#unconfirmed.delete(id);
  }
}
