import type { CallOptions } from "../deadline.js";
import type { DedupeStore } from "../dedupe.js";
import type { BusEvent } from "../event.js";

/** How to consume. */
export interface SubscribeOptions extends CallOptions {
  /**
   * Where a group begins that does not exist yet: with what is published from now on (`latest`, the default), with the
   * first event (`earliest`), with the first of time `ts` or later, or behind the event `afterId`. A group that exists
   * goes on where it stopped.
   */
  from?: "latest" | "earliest" | { ts: number } | { afterId: string };
  /**
   * Handlers that run at a time. 1 unless you say otherwise: then events are handled in their order, but for those
   * that come again.
   */
  concurrency?: number;
  /**
   * Events that the bus may lend to this subscription at a time. Twice the concurrency and at least 16 if absent, so that
   * a handler need not wait for the next event, and a slow one keeps few from others of its group.
   */
  maxInFlight?: number;
  /** How long a lease lasts, in milliseconds; extended for as long as a handler runs. 30,000 if absent. */
  ackTimeoutMs?: number;
  /** Deliveries before an event goes to the dead letters. As the bus is configured (5) if absent. */
  maxAttempts?: number;
  /** Told about each error of a handler, after which its event comes again, and of what else went wrong around it. */
  onError?: (error: unknown, event: BusEvent) => void;
}

/** How to consume once. */
export interface TransformOptions extends SubscribeOptions {
  /** How long marks are kept, in milliseconds: longer than an event may take to come again. 7 days if absent. */
  ttlMs?: number;
}

/** How to consume once, with marks kept by the bus or elsewhere. */
export interface ExactlyOnceOptions extends TransformOptions {
  /** Where marks are kept, if not by the bus. */
  dedupe?: DedupeStore;
}

const DEFAULT_ACK_TIMEOUT_MS = 30_000;
const LEAST_IN_FLIGHT = 16;
const MOST_IN_FLIGHT = 10_000;

/** Options with nothing left open. */
export interface ConsumerSettings {
  readonly concurrency: number;
  readonly maxInFlight: number;
  readonly ackTimeoutMs: number;
  readonly onError: (error: unknown, event: BusEvent) => void;
  /** `opts` of SUBSCRIBE. */
  readonly wire: Readonly<Record<string, unknown>>;
}

/** Fills in what was not said. */
export function consumerSettings(options: SubscribeOptions): ConsumerSettings {
  const { concurrency = 1, ackTimeoutMs = DEFAULT_ACK_TIMEOUT_MS, maxAttempts, onError = () => undefined } = options;
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > MOST_IN_FLIGHT) {
    throw new RangeError(`concurrency must be a whole number from 1 to ${MOST_IN_FLIGHT}`);
  }
  const maxInFlight = options.maxInFlight ?? Math.min(MOST_IN_FLIGHT, Math.max(LEAST_IN_FLIGHT, 2 * concurrency));
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
