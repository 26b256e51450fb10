import type { BindingListener } from "../connection.js";
import { DisconnectedError, isRetryable, type PrombusError, RefusedError } from "../errors.js";
import type { BusEvent } from "../event.js";
import type { EventFrame } from "../session/frames.js";
import { type Delivery, nackMembers } from "./handler.js";
import { type Lease, LeaseBook } from "./lease-book.js";
import type { Operations } from "./operations.js";
import type { Strategy } from "./strategy.js";
import type { ConsumerSettings } from "./subscribe-options.js";

/** The shortest extension that the bus gives. */
const SHORTEST_EXTENSION_MS = 1000;

/** Runs a handler over the events of one subscription: what is lent is in the {@link LeaseBook}, this is what moves it. */
export class Consumer<Result> implements BindingListener {
  readonly #group: string;
  readonly #settings: ConsumerSettings;
  readonly #operations: Operations;
  readonly #strategy: Strategy<Result>;
  readonly #handle: (event: BusEvent, delivery: Delivery) => Result | Promise<Result>;
  readonly #now: () => number;
  readonly #book: LeaseBook;
  #paused = false;
  #stopping = false;
  /** What the bus, or a store, is being told; also of leases that are lost already. */
  #telling = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #quiet: (() => void)[] = [];
  #settleBound: { resolve(): void; reject(error: unknown): void } | undefined;
  #settleEnded: (error: PrombusError | undefined) => void = () => undefined;

  /** Resolves when the bus has the subscription for the first time, rejects when it refuses. */
  readonly firstBound: Promise<void>;
  /** Resolves when it is over, with the reason if it was not stopped by its user. */
  readonly ended: Promise<PrombusError | undefined>;

  constructor(
    group: string,
    settings: ConsumerSettings,
    operations: Operations,
    strategy: Strategy<Result>,
    handle: (event: BusEvent, delivery: Delivery) => Result | Promise<Result>,
    now: () => number,
  ) {
    this.#group = group;
    this.#settings = settings;
    this.#operations = operations;
    this.#strategy = strategy;
    this.#handle = handle;
    this.#now = now;
    this.#book = new LeaseBook(settings.concurrency, settings.maxInFlight);
    this.firstBound = new Promise((resolve, reject) => {
      this.#settleBound = { resolve, reject };
    });
    this.firstBound.catch(() => undefined);
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
  }

  bound(): void {
    this.#settleBound?.resolve();
  }

  unbound(): void {
    this.#book.loseAll(new DisconnectedError("the connection was lost, and the lease with it"));
    this.#moved();
  }

  refused(error: PrombusError): void {
    this.#settleBound?.reject(error);
    this.#book.loseAll(error);
    this.over(error);
  }

  delivered(frame: EventFrame): void {
    if (this.#stopping) return;
    const lease = this.#book.lend(frame, this.#now());
    if (lease === undefined) return;
    if (this.#strategy.remembers(lease.event.id)) {
      void this.#end(lease, undefined);
    } else if (this.#strategy.wasDone) void this.#screen(lease, this.#strategy.wasDone(lease.event));
    else this.#book.ready(lease);
    this.#moved();
  }

  /** Begins no handler until {@link resume}. */
  pause(): void {
    this.#paused = true;
  }

  /** Goes on. */
  resume(): void {
    this.#paused = false;
    this.#moved();
  }

  /** Begins nothing more. Resolves when all that runs is done and told to the bus. */
  async drain(): Promise<void> {
    this.#stopping = true;
    this.#book.dropUnbegun();
    this.#setTimer();
    if (!this.#isQuiet) await new Promise<void>((resolve) => this.#quiet.push(resolve));
  }

  /** Tells handlers that still run that nobody waits for them. */
  abort(reason: unknown): void {
    this.#book.loseAll(reason);
  }

  /** Nothing more happens here. */
  over(error: PrombusError | undefined): void {
    this.#stopping = true;
    this.#settleEnded(error);
    this.#moved();
  }

  get #isQuiet(): boolean {
    return this.#telling === 0 && this.#book.isQuiet;
  }

  /** Something changed: begins what may begin, sets the timer, and tells who waits for quiet. */
  #moved(): void {
    if (!this.#paused && !this.#stopping) {
      for (let lease = this.#book.begin(); lease !== undefined; lease = this.#book.begin()) void this.#run(lease);
    }
    this.#setTimer();
    if (this.#isQuiet) for (const tell of this.#quiet.splice(0)) tell();
  }

  async #screen(lease: Lease, wasDone: Promise<boolean>): Promise<void> {
    try {
      const done = await wasDone;
      if (!this.#book.has(lease)) return;
      if (done) await this.#told(lease, () => this.#operations.ack(lease.event.id));
      else this.#book.ready(lease);
    } catch (error) {
      await this.#giveBack(lease, error);
    } finally {
      this.#moved();
    }
  }

  async #run(lease: Lease): Promise<void> {
    try {
      const result = await this.#handle(lease.event, this.#delivery(lease));
      await this.#end(lease, result);
    } catch (error) {
      await this.#giveBack(lease, error);
    } finally {
      this.#moved();
    }
  }

  /** The handler finished, now or before: tells so. */
  async #end(lease: Lease, result: Result | undefined): Promise<void> {
    const { event } = lease;
    const leased = lease.endsAt !== undefined;
    await this.#told(lease, () =>
      leased ? this.#strategy.finish(event, result) : this.#strategy.finishUnleased(event),
    );
    this.#moved();
  }

  /** Tells the bus, and whoever listens for errors if that fails for another reason than a lost connection. */
  async #told(lease: Lease, tell: () => Promise<void>): Promise<void> {
    this.#book.ending(lease);
    this.#telling += 1;
    // The next event need not wait for that.
    this.#moved();
    try {
      await tell();
    } catch (error) {
      if (!isRetryable(error)) await this.#giveBack(lease, error);
    } finally {
      this.#telling -= 1;
      this.#book.drop(lease);
    }
  }

  async #giveBack(lease: Lease, error: unknown): Promise<void> {
    if (lease.phase !== "ending") this.#book.ending(lease);
    this.#report(error, lease.event);
    this.#moved();
    try {
      if (lease.endsAt !== undefined && this.#book.has(lease)) {
        await this.#operations.nack(lease.event.id, nackMembers(error));
      }
    } catch (failure) {
      if (!isRetryable(failure)) this.#report(failure, lease.event);
    } finally {
      this.#book.drop(lease);
    }
  }

  #report(error: unknown, event: BusEvent): void {
    try {
      this.#settings.onError(error, event);
    } catch {
      // An error in the listener for errors has nowhere to go.
    }
  }

  #delivery(lease: Lease): Delivery {
    const now = this.#now;
    return {
      group: this.#group,
      signal: lease.abort.signal,
      get attempt() {
        return lease.attempt;
      },
      get deadline() {
        return Date.now() + Math.max(0, (lease.endsAt ?? 0) - now());
      },
    };
  }

  #setTimer(): void {
    const at = this.#book.renewsAt ?? Number.POSITIVE_INFINITY;
    // A timer that is too early is cheaper than one that is set anew with every event.
    if (at >= this.#timerAt && at !== Number.POSITIVE_INFINITY) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    if (at === Number.POSITIVE_INFINITY) return;
    this.#timer = setTimeout(() => this.#renew(), Math.max(0, Math.ceil(at - this.#now())));
  }

  #renew(): void {
    this.#timerAt = Number.POSITIVE_INFINITY;
    const askedAt = this.#now();
    const ms = Math.max(SHORTEST_EXTENSION_MS, this.#settings.ackTimeoutMs);
    for (const lease of this.#book.toRenew(askedAt)) {
      this.#operations.extend(lease.event.id, ms).then(
        () => {
          this.#book.extended(lease, askedAt, ms);
          this.#setTimer();
        },
        (error: unknown) => {
          if (!(error instanceof RefusedError) || !this.#book.has(lease)) return;
          if (error.code === "lease_lost" && lease.phase !== "ending") this.#book.lose(lease, error);
          else if (error.code !== "lease_lost") this.#report(error, lease.event);
          this.#moved();
        },
      );
    }
    this.#setTimer();
  }
}
