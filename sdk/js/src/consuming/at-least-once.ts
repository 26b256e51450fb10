import type { BusEvent } from "../event.js";
import type { Operations } from "./operations.js";
import type { Strategy } from "./strategy.js";

/** Handle, then acknowledge. */
export class AtLeastOnce implements Strategy<void> {
  readonly #operations: Operations;

  constructor(operations: Operations) {
    this.#operations = operations;
  }

  remembers(): boolean {
    return false;
  }

  finish({ id }: BusEvent): Promise<void> {
    return this.#operations.ack(id);
  }

  async finishUnleased(): Promise<void> {
    // It comes again: that is what at least once means.
  }
}
