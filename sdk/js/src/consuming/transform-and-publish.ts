import { RefusedError } from "../errors.js";
import type { BusEvent, OutgoingEvent } from "../event.js";
import { wireOptions } from "../session/frames.js";
import type { GroupOperations } from "./group-operations.js";
import type { DeliverySemantics } from "./semantics.js";

/** Skips marked events; publishes the handler's results, marks and acknowledges the others in one commit. */
export class TransformAndPublish implements DeliverySemantics<Iterable<OutgoingEvent> | undefined> {
  readonly #operations: GroupOperations;
  readonly #ttlMs: number;

  constructor(operations: GroupOperations, ttlMs: number) {
    this.#operations = operations;
    this.#ttlMs = ttlMs;
  }

  isMarked({ id }: BusEvent): Promise<boolean> {
    return this.#operations.seen(id);
  }

  finishedHere(): boolean {
    return false;
  }

  async complete({ id }: BusEvent, results: Iterable<OutgoingEvent> | undefined): Promise<void> {
    const publish = Array.from(results ?? [], (event) => {
      const { topic, payload } = event;
      if (payload === undefined) throw new RefusedError("bad_json", `an event for ${topic} has no payload`);
      return { topic, payload, opts: wireOptions(event) };
    });
    try {
      await this.#operations.ackAndPublish(id, publish, this.#ttlMs);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      // Another member has the event and will publish its results.
      if (error.code === "lease_lost") return;
      if (error.code !== "conflict") throw error;
      // Another member published the results. Only the lease is left to end.
      await this.#operations.ack(id);
    }
  }

  async completeWithoutLease(): Promise<void> {
    // Nothing was published, so the event is redelivered.
  }
}
