import type { BusEvent } from "../event.js";
import type { EventFrame } from "../session/frames.js";

/** How far an event is here: asked for whether it was done before, waiting for its turn, handled, being ended. */
export type Phase = "screened" | "waiting" | "running" | "ending";

/** An event that the bus lent to this subscription. */
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
 * lent, which is at most `maxInFlight`: what waits with a lease that is over is dropped, since it comes again.
 */
export class LeaseBook {
  readonly #concurrency: number;
  readonly #leases = new Map<string, Lease>();
  #running = 0;

  constructor(concurrency: number) {
    this.#concurrency = concurrency;
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
    for (const { phase } of this.#leases.values()) if (phase === "running" || phase === "ending") return false;
    return true;
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
    const held = this.#leases.get(event.id);
    if (held !== undefined && held.phase !== "ending") {
      Object.assign(held, { attempt: ctx.attempt, endsAt, renewsAt });
      return undefined;
    }
    this.#dropOver(now);
    const lease: Lease = {
      event,
      abort: new AbortController(),
      attempt: ctx.attempt,
      phase: "screened",
      endsAt,
      renewsAt,
    };
    this.#leases.set(event.id, lease);
    return lease;
  }

  /** The next event whose handler may begin, which then counts as running. */
  begin(): Lease | undefined {
    if (this.#running >= this.#concurrency) return undefined;
    for (const lease of this.#leases.values()) {
      if (lease.phase !== "waiting") continue;
      lease.phase = "running";
      this.#running += 1;
      return lease;
    }
    return undefined;
  }

  /** Its handler is done; what is left is to tell the bus. */
  ran(lease: Lease): void {
    lease.phase = "ending";
    this.#running -= 1;
  }

  /** It is over. */
  drop(lease: Lease): void {
    if (this.has(lease)) this.#leases.delete(lease.event.id);
  }

  /** Its lease is lost. What runs is told so; what has not begun is forgotten. */
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
    for (const lease of [...this.#leases.values()]) {
      if (lease.phase === "screened" || lease.phase === "waiting") this.drop(lease);
    }
  }

  /** When the next lease has to be extended. */
  renewsAt(): number | undefined {
    let at: number | undefined;
    for (const lease of this.#leases.values()) {
      if (lease.endsAt !== undefined && (at === undefined || lease.renewsAt < at)) at = lease.renewsAt;
    }
    return at;
  }

  /** Leases that are to be extended now; each counts as if it were until it is {@link extended} or not. */
  toRenew(now: number): Lease[] {
    const due = [...this.#leases.values()].filter((lease) => lease.endsAt !== undefined && lease.renewsAt <= now);
    // If no answer comes it is tried again half way to the end, and not all the time.
    for (const lease of due) lease.renewsAt = now + Math.max(1000, ((lease.endsAt as number) - now) / 2);
    return due;
  }

  /** The bus extended a lease by `ms`, from when it was asked to. */
  extended(lease: Lease, askedAt: number, ms: number): void {
    if (lease.endsAt === undefined) return;
    lease.endsAt = askedAt + ms;
    lease.renewsAt = askedAt + ms / 2;
  }

  #dropOver(now: number): void {
    for (const lease of [...this.#leases.values()]) {
      const over = lease.endsAt !== undefined && lease.endsAt <= now;
      if (over && lease.phase === "waiting") this.drop(lease);
    }
  }
}
