import { RefusedError } from "../errors.js";
import type { BusEvent, OutgoingEvent } from "../event.js";
import { wireOptions } from "../session/frames.js";
import type { Operations } from "./operations.js";
import type { Strategy } from "./strategy.js";

/** Skip what is marked, handle, then publish what that made, mark and acknowledge in one commit. */
export class Transforming implements Strategy<Iterable<OutgoingEvent> | undefined> {
  readonly #operations: Operations;
  readonly #ttlMs: number;

  constructor(operations: Operations, ttlMs: number) {
    this.#operations = operations;
    this.#ttlMs = ttlMs;
  }

  wasDone({ id }: BusEvent): Promise<boolean> {
    return this.#operations.seen(id);
  }

  remembers(): boolean {
    return false;
  }

  async finish({ id }: BusEvent, made: Iterable<OutgoingEvent> | undefined): Promise<void> {
    const publish = Array.from(made ?? [], (event) => {
      const { topic, payload } = event;
      if (payload === undefined) throw new RefusedError("bad_json", `an event for ${topic} has no payload`);
      return { topic, payload, opts: wireOptions(event) };
    });
    try {
      await this.#operations.ackPublishing(id, publish, this.#ttlMs);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      // Somebody else has the event now, and will publish.
      if (error.code === "lease_lost") return;
      if (error.code !== "conflict") throw error;
      // It was done meanwhile; what is left is the lease.
      await this.#operations.ack(id);
    }
  }

  async finishUnleased(): Promise<void> {
    // Nothing was published: the event comes again.
  }
}
