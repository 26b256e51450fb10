import type { BindingListener } from "../connection.js";
import { Deferred } from "../deferred.js";
import { DisconnectedError, isRetryable, type PrombusError, type RefusedError } from "../errors.js";
import type { BusEvent } from "../event.js";
import type { EventFrame } from "../session/frames.js";
import type { GroupOperations } from "./group-operations.js";
import { type Delivery, nackMembers } from "./handler.js";
import { LeaseRenewer } from "./lease-renewer.js";
import { type Lease, LeaseTable } from "./lease-table.js";
import type { DeliverySemantics } from "./semantics.js";
import type { ConsumerSettings } from "./subscribe-options.js";

/** Runs a handler for the events of one subscription. The {@link LeaseTable} holds their state. */
export class Consumer<Result> implements BindingListener {
  readonly #settings: ConsumerSettings;
  readonly #operations: GroupOperations;
  readonly #semantics: DeliverySemantics<Result>;
  readonly #handle: (event: BusEvent, delivery: Delivery) => Result | Promise<Result>;
  readonly #now: () => number;
  readonly #leases: LeaseTable;
  readonly #renewer: LeaseRenewer;
  readonly #firstBound = new Deferred<void>();
  readonly #ended = new Deferred<PrombusError | undefined>();
  #mode: "running" | "paused" | "stopping" = "running";
  /** Unfinished calls to the bus or to the user's store, including those whose leases are lost. */
  #settling = 0;
  #idleCallbacks: (() => void)[] = [];

  constructor(
    settings: ConsumerSettings,
    operations: GroupOperations,
    semantics: DeliverySemantics<Result>,
    handle: (event: BusEvent, delivery: Delivery) => Result | Promise<Result>,
    now: () => number,
  ) {
    this.#settings = settings;
    this.#operations = operations;
    this.#semantics = semantics;
    this.#handle = handle;
    this.#now = now;
    this.#leases = new LeaseTable(settings.concurrency, settings.maxInFlight);
    this.#renewer = new LeaseRenewer(this.#leases, operations, settings.ackTimeoutMs, now, (lease, error) =>
      this.#extensionRefused(lease, error),
    );
    // The rejection may come before anyone awaits it.
    this.#firstBound.promise.catch(() => undefined);
  }

  /** Resolves when the bus accepts the subscription for the first time; rejects if it refuses. */
  get firstBound(): Promise<void> {
    return this.#firstBound.promise;
  }

  /** Resolves when the subscription ends, with the error unless its user stopped it. */
  get ended(): Promise<PrombusError | undefined> {
    return this.#ended.promise;
  }

  bound(): void {
    this.#firstBound.resolve();
  }

  unbound(): void {
    this.#leases.loseAll(new DisconnectedError("the lease was lost with the connection"));
    this.#advance();
  }

  refused(error: PrombusError): void {
    this.#firstBound.reject(error);
    this.#leases.loseAll(error);
    this.end(error);
  }

  delivered(frame: EventFrame): void {
    if (this.#mode === "stopping") return;
    const lease = this.#leases.add(frame, this.#now());
    if (lease === undefined) return;
    if (this.#semantics.finishedHere(lease.event.id)) void this.#complete(lease, undefined);
    else if (this.#semantics.isMarked) void this.#check(lease, this.#semantics.isMarked(lease.event));
    else this.#leases.enqueue(lease);
    this.#advance();
  }

  /** Starts no handler until {@link resume}. */
  pause(): void {
    if (this.#mode === "running") this.#mode = "paused";
  }

  resume(): void {
    if (this.#mode === "paused") this.#mode = "running";
    this.#advance();
  }

  /** Starts no more handlers. Resolves when the running ones have finished and the bus knows. */
  async drain(): Promise<void> {
    this.#mode = "stopping";
    this.#leases.dropUnstarted();
    this.#renewer.schedule();
    if (!this.#isIdle) await new Promise<void>((resolve) => this.#idleCallbacks.push(resolve));
  }

  /** Aborts the signals of running handlers. */
  abort(reason: unknown): void {
    this.#leases.loseAll(reason);
  }

  /** Ends the subscription, with the error unless its user stopped it. */
  end(error: PrombusError | undefined): void {
    this.#mode = "stopping";
    this.#ended.resolve(error);
    this.#advance();
  }

  get #isIdle(): boolean {
    return this.#settling === 0 && this.#leases.isIdle;
  }

  /** Starts the handlers that may start, sets the renewal timer, and resolves {@link drain} if nothing runs any more. */
  #advance(): void {
    if (this.#mode === "running") {
      for (let lease = this.#leases.startNext(); lease !== undefined; lease = this.#leases.startNext()) {
        void this.#run(lease);
      }
    }
    this.#renewer.schedule();
    if (this.#isIdle) for (const callback of this.#idleCallbacks.splice(0)) callback();
  }

  async #check(lease: Lease, isMarked: Promise<boolean>): Promise<void> {
    try {
      const marked = await isMarked;
      if (!this.#leases.has(lease)) return;
      if (marked) await this.#settle(lease, () => this.#operations.ack(lease.event.id));
      else this.#leases.enqueue(lease);
    } catch (error) {
      await this.#nack(lease, error);
    } finally {
      this.#advance();
    }
  }

  async #run(lease: Lease): Promise<void> {
    try {
      const result = await this.#handle(lease.event, this.#delivery(lease));
      await this.#complete(lease, result);
    } catch (error) {
      await this.#nack(lease, error);
    } finally {
      this.#advance();
    }
  }

  async #complete(lease: Lease, result: Result | undefined): Promise<void> {
    const { event } = lease;
    const isLeased = lease.endsAt !== undefined;
    await this.#settle(lease, () =>
      isLeased ? this.#semantics.complete(event, result) : this.#semantics.completeWithoutLease(event),
    );
    this.#advance();
  }

  /** Tells the bus that an event is done. If that fails for another reason than a lost connection, nacks the event. */
  async #settle(lease: Lease, tell: () => Promise<void>): Promise<void> {
    this.#leases.startSettling(lease);
    this.#settling += 1;
    // The next handler need not wait for the answer.
    this.#advance();
    try {
      await tell();
    } catch (error) {
      if (!isRetryable(error)) await this.#nack(lease, error);
    } finally {
      this.#settling -= 1;
      this.#leases.drop(lease);
    }
  }

  async #nack(lease: Lease, error: unknown): Promise<void> {
    if (lease.phase !== "settling") this.#leases.startSettling(lease);
    this.#report(error, lease.event);
    this.#advance();
    try {
      if (lease.endsAt !== undefined && this.#leases.has(lease)) {
        await this.#operations.nack(lease.event.id, nackMembers(error));
      }
    } catch (failure) {
      if (!isRetryable(failure)) this.#report(failure, lease.event);
    } finally {
      this.#leases.drop(lease);
    }
  }

  #extensionRefused(lease: Lease, error: RefusedError): void {
    if (error.code !== "lease_lost") this.#report(error, lease.event);
    else if (lease.phase !== "settling") this.#leases.lose(lease, error);
    this.#advance();
  }

  #report(error: unknown, event: BusEvent): void {
    try {
      this.#settings.onError(error, event);
    } catch {
      // There is nowhere to report an error of the error listener.
    }
  }

  #delivery(lease: Lease): Delivery {
    const now = this.#now;
    return {
      group: this.#operations.group,
      signal: lease.abort.signal,
      get attempt() {
        return lease.attempt;
      },
      get deadline() {
        return Date.now() + Math.max(0, (lease.endsAt ?? 0) - now());
      },
    };
  }
}
