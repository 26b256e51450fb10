import { isRetryable } from "../errors.js";
import type { BusEvent } from "../event.js";
import type { Finished } from "./finished.js";
import type { Operations } from "./operations.js";
import type { Strategy } from "./strategy.js";

/** Skip what is marked, handle, then mark and acknowledge in one commit. */
export class MarkedByBus implements Strategy<void> {
  readonly #operations: Operations;
  readonly #finished: Finished;

  constructor(operations: Operations, finished: Finished) {
    this.#operations = operations;
    this.#finished = finished;
  }

  wasDone({ id }: BusEvent): Promise<boolean> {
    return this.#operations.seen(id);
  }

  remembers(id: string): boolean {
    return this.#finished.has(id);
  }

  async finish(event: BusEvent): Promise<void> {
    this.#finished.add(event.id);
    try {
      await this.#operations.ackMarked(event.id);
    } catch (error) {
      if (!isRetryable(error)) throw error;
      // Whether it is marked is not known. Marking twice does no harm, and comes before the event comes again.
      await this.#operations.mark(event.id);
    }
    this.#finished.delete(event.id);
  }

  async finishUnleased({ id }: BusEvent): Promise<void> {
    this.#finished.add(id);
    await this.#operations.mark(id);
    this.#finished.delete(id);
  }
}
