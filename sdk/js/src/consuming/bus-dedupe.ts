import { isRetryable } from "../errors.js";
import type { BusEvent } from "../event.js";
import type { GroupOperations } from "./group-operations.js";
import type { DeliverySemantics } from "./semantics.js";
import type { UnconfirmedMarks } from "./unconfirmed-marks.js";

/** Exactly once with marks on the bus: skips marked events, and marks and acknowledges the others in one commit. */
export class BusDedupe implements DeliverySemantics<void> {
  readonly #operations: GroupOperations;
  readonly #unconfirmed: UnconfirmedMarks;

  constructor(operations: GroupOperations, unconfirmed: UnconfirmedMarks) {
    this.#operations = operations;
    this.#unconfirmed = unconfirmed;
  }

  isMarked({ id }: BusEvent): Promise<boolean> {
    return this.#operations.seen(id);
  }

  finishedHere(id: string): boolean {
    return this.#unconfirmed.has(id);
  }

  async complete(event: BusEvent): Promise<void> {
    this.#unconfirmed.add(event.id);
    try {
      await this.#operations.ackAndMark(event.id);
    } catch (error) {
      if (!isRetryable(error)) throw error;
      // The mark may or may not be stored. Marking twice is harmless, and happens before the event is redelivered.
      await this.#operations.mark(event.id);
    }
    this.#unconfirmed.delete(event.id);
  }

  async completeWithoutLease({ id }: BusEvent): Promise<void> {
    this.#unconfirmed.add(id);
    await this.#operations.mark(id);
    this.#unconfirmed.delete(id);
  }
}
