import type { BusEvent } from "../event.js";
import type { GroupOperations } from "./group-operations.js";
import type { DeliverySemantics } from "./semantics.js";

/** Acknowledges an event after its handler. */
export class AtLeastOnce implements DeliverySemantics<void> {
  readonly #operations: GroupOperations;

  constructor(operations: GroupOperations) {
    this.#operations = operations;
  }

  finishedHere(): boolean {
    return false;
  }

  complete({ id }: BusEvent): Promise<void> {
    return this.#operations.ack(id);
  }

  async completeWithoutLease(): Promise<void> {
    // The event is redelivered, as at-least-once allows.
  }
}
