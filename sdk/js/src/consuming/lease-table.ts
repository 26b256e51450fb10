import type { BusEvent } from "../event.js";
import type { EventFrame } from "../session/frames.js";

/** Where a delivered event is: being looked up among the marks, queued, in its handler, or being (n)acked. */
export type LeasePhase = "checking" | "waiting" | "running" | "settling";

/** An event that the bus leased to this subscription. Only {@link LeaseTable} changes it. */
export interface Lease {
  readonly event: BusEvent;
  readonly abort: AbortController;
  attempt: number;
  phase: LeasePhase;
  /** `undefined` once the lease is lost. */
  endsAt: number | undefined;
  renewsAt: number;
}

/**
 * The leases of a subscription and their phases. Pure: callers pass the time. Holds about `maxInFlight` leases; beyond
 * that it drops waiting events whose leases have ended, because they are redelivered.
 */
export class LeaseTable {
  readonly #concurrency: number;
  readonly #maxInFlight: number;
  readonly #leases = new Map<string, Lease>();
  #waiting: Lease[] = [];
  #running = 0;
  #settling = 0;
  /** A lower bound of when the next lease is to be extended. */
  #renewsAt = Number.POSITIVE_INFINITY;

  constructor(concurrency: number, maxInFlight: number) {
    this.#concurrency = concurrency;
    this.#maxInFlight = maxInFlight;
  }

  get size(): number {
    return this.#leases.size;
  }

  /** The number of running handlers. */
  get running(): number {
    return this.#running;
  }

  /** True if no handler runs and no event is being settled. */
  get isIdle(): boolean {
    return this.#running === 0 && this.#settling === 0;
  }

  /** When {@link takeDue} is to be called next, if at all. */
  get renewsAt(): number | undefined {
    return this.#leases.size > 0 && Number.isFinite(this.#renewsAt) ? this.#renewsAt : undefined;
  }

  /** Returns `true` if this lease, and not a later one of the same event, is in the table. */
  has(lease: Lease): boolean {
    return this.#leases.get(lease.event.id) === lease;
  }

  /**
   * Adds a delivered event. Returns `undefined` if the event is already here because its lease was lost while it was
   * handled: then the running handler has a lease again and the event is not handled twice at once. An event that is
   * being settled gets a new lease, because the redelivery after a NACK may arrive before the answer to the NACK.
   */
  add({ event, ctx }: EventFrame, now: number): Lease | undefined {
    const endsAt = now + ctx.ack_deadline_ms;
    const renewsAt = now + ctx.ack_deadline_ms / 2;
    this.#renewsAt = Math.min(this.#renewsAt, renewsAt);
    const existing = this.#leases.get(event.id);
    if (existing !== undefined && existing.phase !== "settling") {
      Object.assign(existing, { attempt: ctx.attempt, endsAt, renewsAt });
      return undefined;
    }
    if (existing !== undefined) this.drop(existing);
    if (this.#leases.size >= this.#maxInFlight) this.#dropEnded(now);
    const abort = new AbortController();
    const lease: Lease = { event, abort, attempt: ctx.attempt, phase: "checking", endsAt, renewsAt };
    this.#leases.set(event.id, lease);
    return lease;
  }

  /** Queues an event for its handler. */
  enqueue(lease: Lease): void {
    lease.phase = "waiting";
    this.#waiting.push(lease);
  }

  /** Returns the next event whose handler may start, and counts it as running. */
  startNext(): Lease | undefined {
    if (this.#running >= this.#concurrency) return undefined;
    for (let lease = this.#waiting.shift(); lease !== undefined; lease = this.#waiting.shift()) {
      if (!this.has(lease)) continue;
      lease.phase = "running";
      this.#running += 1;
      return lease;
    }
    return undefined;
  }

  /** Records that the handler finished or was skipped and that the ACK or NACK is being sent. */
  startSettling(lease: Lease): void {
    if (lease.phase === "running") this.#running -= 1;
    lease.phase = "settling";
    if (this.has(lease)) this.#settling += 1;
  }

  drop(lease: Lease): void {
    if (!this.has(lease)) return;
    this.#leases.delete(lease.event.id);
    if (lease.phase === "settling") this.#settling -= 1;
    if (this.#leases.size === 0) this.#renewsAt = Number.POSITIVE_INFINITY;
  }

  /** Records that a lease was lost. Aborts a running handler's signal; drops the lease in any other phase. */
  lose(lease: Lease, reason: unknown): void {
    lease.endsAt = undefined;
    lease.abort.abort(reason);
    if (lease.phase !== "running") this.drop(lease);
  }

  loseAll(reason: unknown): void {
    for (const lease of [...this.#leases.values()]) this.lose(lease, reason);
  }

  /** Drops all events whose handlers have not started. */
  dropUnstarted(): void {
    this.#waiting = [];
    for (const lease of [...this.#leases.values()]) {
      if (lease.phase === "checking" || lease.phase === "waiting") this.drop(lease);
    }
  }

  /** Returns the leases to extend now, and schedules another try for each in case no answer arrives. */
  takeDue(now: number): Lease[] {
    const due: Lease[] = [];
    this.#renewsAt = Number.POSITIVE_INFINITY;
    for (const lease of this.#leases.values()) {
      if (lease.endsAt === undefined) continue;
      if (lease.renewsAt <= now) {
        due.push(lease);
        // Half-way to the end, and at most once per second.
        lease.renewsAt = now + Math.max(1000, (lease.endsAt - now) / 2);
      }
      this.#renewsAt = Math.min(this.#renewsAt, lease.renewsAt);
    }
    return due;
  }

  /** Records that the bus extended a lease by `ms` from `requestedAt`. */
  extended(lease: Lease, requestedAt: number, ms: number): void {
    if (lease.endsAt === undefined) return;
    lease.endsAt = requestedAt + ms;
    lease.renewsAt = requestedAt + ms / 2;
    this.#renewsAt = Math.min(this.#renewsAt, lease.renewsAt);
  }

  #dropEnded(now: number): void {
    const ended = this.#waiting.filter(({ endsAt }) => endsAt !== undefined && endsAt <= now);
    for (const lease of ended) this.drop(lease);
    this.#waiting = this.#waiting.filter((lease) => this.has(lease));
  }
}
