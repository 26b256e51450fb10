import type { BusEvent } from "../event.js";
import type { EventFrame } from "../session/frames.js";

/** How far an event is here: asked for whether it was done before, waiting for its turn, handled, being ended. */
export type Phase = "screened" | "waiting" | "running" | "ending";

/** An event that the bus lent to this subscription. The {@link LeaseBook} alone changes it. */
export interface Lease {
  readonly event: BusEvent;
  readonly abort: AbortController;
  attempt: number;
  phase: Phase;
  /** When it ends, if it is not lost already. */
  endsAt: number | undefined;
  /** When it is to be extended. */
  renewsAt: number;
}

/**
 * What is lent to a subscription and how far it is. Pure: time is handed in. It holds what runs and what the bus has
 * lent, which is about `maxInFlight`: beyond that, what waits with a lease that is over is dropped, since it comes again.
 */
export class LeaseBook {
  readonly #concurrency: number;
  readonly #maxInFlight: number;
  readonly #leases = new Map<string, Lease>();
  #waiting: Lease[] = [];
  #running = 0;
  #ending = 0;
  /** No lease is to be extended before this; it may be too early, never too late. */
  #renewsAt = Number.POSITIVE_INFINITY;

  constructor(concurrency: number, maxInFlight: number) {
    this.#concurrency = concurrency;
    this.#maxInFlight = maxInFlight;
  }

  /** How many events are held. */
  get size(): number {
    return this.#leases.size;
  }

  /** How many handlers run. */
  get running(): number {
    return this.#running;
  }

  /** Nothing runs and nothing is being ended. */
  get isQuiet(): boolean {
    return this.#running === 0 && this.#ending === 0;
  }

  /** When {@link toRenew} is to be asked. */
  get renewsAt(): number | undefined {
    return this.#leases.size > 0 && Number.isFinite(this.#renewsAt) ? this.#renewsAt : undefined;
  }

  /** Whether this very lease is still held. */
  has(lease: Lease): boolean {
    return this.#leases.get(lease.event.id) === lease;
  }

  /**
   * An event came. `undefined` if it is here already, because its lease was lost while it was handled: then it has a
   * lease again and goes on, and is not handled a second time beside itself. One that is being ended is lent anew: what
   * a NACK set free may come before the answer to that.
   */
  lend({ event, ctx }: EventFrame, now: number): Lease | undefined {
    const endsAt = now + ctx.ack_deadline_ms;
    const renewsAt = now + ctx.ack_deadline_ms / 2;
    this.#renewsAt = Math.min(this.#renewsAt, renewsAt);
    const held = this.#leases.get(event.id);
    if (held !== undefined && held.phase !== "ending") {
      Object.assign(held, { attempt: ctx.attempt, endsAt, renewsAt });
      return undefined;
    }
    if (held !== undefined) this.drop(held);
    if (this.#leases.size >= this.#maxInFlight) this.#dropOver(now);
    const abort = new AbortController();
    const lease: Lease = { event, abort, attempt: ctx.attempt, phase: "screened", endsAt, renewsAt };
    this.#leases.set(event.id, lease);
    return lease;
  }

  /** It may be handled. */
  ready(lease: Lease): void {
    lease.phase = "waiting";
    this.#waiting.push(lease);
  }

  /** The next event whose handler may begin, which then counts as running. */
  begin(): Lease | undefined {
    if (this.#running >= this.#concurrency) return undefined;
    for (let lease = this.#waiting.shift(); lease !== undefined; lease = this.#waiting.shift()) {
      if (!this.has(lease)) continue;
      lease.phase = "running";
      this.#running += 1;
      return lease;
    }
    return undefined;
  }

  /** It is not handled, or its handler is done; what is left is to tell the bus. */
  ending(lease: Lease): void {
    if (lease.phase === "running") this.#running -= 1;
    lease.phase = "ending";
    if (this.has(lease)) this.#ending += 1;
  }

  /** It is over. */
  drop(lease: Lease): void {
    if (!this.has(lease)) return;
    this.#leases.delete(lease.event.id);
    if (lease.phase === "ending") this.#ending -= 1;
    if (this.#leases.size === 0) this.#renewsAt = Number.POSITIVE_INFINITY;
  }

  /** Its lease is lost. What runs is told so; anything else is forgotten. */
  lose(lease: Lease, reason: unknown): void {
    lease.endsAt = undefined;
    lease.abort.abort(reason);
    if (lease.phase !== "running") this.drop(lease);
  }

  /** All leases are lost, with the connection. */
  loseAll(reason: unknown): void {
    for (const lease of [...this.#leases.values()]) this.lose(lease, reason);
  }

  /** What has not begun is not kept any longer. */
  dropUnbegun(): void {
    this.#waiting = [];
    for (const lease of [...this.#leases.values()]) {
      if (lease.phase === "screened" || lease.phase === "waiting") this.drop(lease);
    }
  }

  /** Leases that are to be extended now; each counts as if it were until it is {@link extended} or not. */
  toRenew(now: number): Lease[] {
    const due: Lease[] = [];
    this.#renewsAt = Number.POSITIVE_INFINITY;
    for (const lease of this.#leases.values()) {
      if (lease.endsAt === undefined) continue;
      if (lease.renewsAt <= now) {
        due.push(lease);
        // If no answer comes it is tried again half way to the end, and not all the time.
        lease.renewsAt = now + Math.max(1000, (lease.endsAt - now) / 2);
      }
      this.#renewsAt = Math.min(this.#renewsAt, lease.renewsAt);
    }
    return due;
  }

  /** The bus extended a lease by `ms`, from when it was asked to. */
  extended(lease: Lease, askedAt: number, ms: number): void {
    if (lease.endsAt === undefined) return;
    lease.endsAt = askedAt + ms;
    lease.renewsAt = askedAt + ms / 2;
    this.#renewsAt = Math.min(this.#renewsAt, lease.renewsAt);
  }

  #dropOver(now: number): void {
    const over = this.#waiting.filter(({ endsAt }) => endsAt !== undefined && endsAt <= now);
    for (const lease of over) this.drop(lease);
    this.#waiting = this.#waiting.filter((lease) => this.has(lease));
  }
}
