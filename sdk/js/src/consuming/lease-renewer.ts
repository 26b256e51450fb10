import { RefusedError } from "../errors.js";
import { WakeupTimer } from "../wakeup-timer.js";
import type { GroupOperations } from "./group-operations.js";
import type { Lease, LeaseTable } from "./lease-table.js";

/** The shortest extension that the bus grants. */
const SHORTEST_EXTENSION_MS = 1000;

/** Extends the leases of a subscription before they end. */
export class LeaseRenewer {
  readonly #leases: LeaseTable;
  readonly #operations: GroupOperations;
  readonly #extensionMs: number;
  readonly #now: () => number;
  readonly #onRefused: (lease: Lease, error: RefusedError) => void;
  readonly #timer: WakeupTimer;

  /** `onRefused` is called if the bus refuses to extend a lease that is still in the table. */
  constructor(
    leases: LeaseTable,
    operations: GroupOperations,
    ackTimeoutMs: number,
    now: () => number,
    onRefused: (lease: Lease, error: RefusedError) => void,
  ) {
    this.#leases = leases;
    this.#operations = operations;
    this.#extensionMs = Math.max(SHORTEST_EXTENSION_MS, ackTimeoutMs);
    this.#now = now;
    this.#onRefused = onRefused;
    this.#timer = new WakeupTimer(now, () => this.#renew());
  }

  /** Sets the timer after a change of the leases. */
  schedule(): void {
    this.#timer.set(this.#leases.renewsAt);
  }

  #renew(): void {
    const requestedAt = this.#now();
    for (const lease of this.#leases.takeDue(requestedAt)) {
      this.#operations.extend(lease.event.id, this.#extensionMs).then(
        () => {
          this.#leases.extended(lease, requestedAt, this.#extensionMs);
          this.schedule();
        },
        (error: unknown) => {
          if (error instanceof RefusedError && this.#leases.has(lease)) this.#onRefused(lease, error);
        },
      );
    }
    this.schedule();
  }
}
