import type { CallOptions } from "../deadline.js";
import type { DedupeStore } from "../dedupe.js";
import type { BusEvent } from "../event.js";

/** Options of `subscribe`. */
export interface SubscribeOptions extends CallOptions {
  /**
   * Where a new group starts: with events published from now on (`latest`, the default), with the first event of the
   * topic (`earliest`), with the first event at time `ts` or later, or after the event `afterId`. An existing group
   * continues where it stopped.
   */
  from?: "latest" | "earliest" | { ts: number } | { afterId: string };
  /** The number of handlers that run at once. Default: 1, which handles events in order, redeliveries excepted. */
  concurrency?: number;
  /**
   * The number of events that the bus leases to this subscription at once. Default: twice the concurrency and at least
   * 16, so that a handler need not wait for its next event and a slow one keeps few events from other members.
   */
  maxInFlight?: number;
  /** The duration of a lease in milliseconds; the client extends it while the handler runs. Default: 30,000. */
  ackTimeoutMs?: number;
  /**
   * How often an event fails before it becomes a dead letter, from now on for the whole group. Default: what another
   * subscription has set, or else as configured on the bus (5).
   */
  maxAttempts?: number;
  /** Called with each error that a handler throws, and with errors of acknowledging or extending its event. */
  onError?: (error: unknown, event: BusEvent) => void;
}

/** Options of `transformExactlyOnce`. */
export interface TransformOptions extends SubscribeOptions {
  /** The time-to-live of marks in milliseconds: longer than a redelivery may take. Default: 7 days. */
  ttlMs?: number;
}

/** Options of `subscribeExactlyOnce`. */
export interface ExactlyOnceOptions extends TransformOptions {
  /** The store of the marks. Default: the bus. */
  dedupe?: DedupeStore;
}

const DEFAULT_ACK_TIMEOUT_MS = 30_000;
const MIN_IN_FLIGHT = 16;
const MAX_IN_FLIGHT = 10_000;

/** {@link SubscribeOptions} with their defaults filled in. */
export interface ConsumerSettings {
  readonly concurrency: number;
  readonly maxInFlight: number;
  readonly ackTimeoutMs: number;
  readonly onError: (error: unknown, event: BusEvent) => void;
  /** `opts` of SUBSCRIBE. */
  readonly wire: Readonly<Record<string, unknown>>;
}

/** Fills in the defaults. */
export function consumerSettings(options: SubscribeOptions): ConsumerSettings {
  const { concurrency = 1, ackTimeoutMs = DEFAULT_ACK_TIMEOUT_MS, maxAttempts, onError = () => undefined } = options;
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > MAX_IN_FLIGHT) {
    throw new RangeError(`concurrency must be an integer from 1 to ${MAX_IN_FLIGHT}`);
  }
  const maxInFlight = options.maxInFlight ?? Math.min(MAX_IN_FLIGHT, Math.max(MIN_IN_FLIGHT, 2 * concurrency));
  return {
    concurrency,
    maxInFlight,
    ackTimeoutMs,
    onError,
    wire: { ...wireFrom(options.from), maxInFlight, ackTimeoutMs, maxAttempts },
  };
}

function wireFrom(from: SubscribeOptions["from"]): Record<string, unknown> {
  if (from === undefined || typeof from === "string") return { from };
  return "ts" in from ? { from: "ts", ts: from.ts } : { from: "afterId", afterId: from.afterId };
}
