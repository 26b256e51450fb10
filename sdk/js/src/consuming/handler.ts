import type { BusEvent, OutgoingEvent } from "../event.js";

/** The delivery of an event to a handler. */
export interface Delivery {
  /** The consumer group that the event was delivered to. */
  readonly group: string;
  /** Counts the deliveries of this event to this group, from 1. */
  readonly attempt: number;
  /** When the lease ends, in milliseconds since 1970. Moves as the client extends the lease while the handler runs. */
  readonly deadline: number;
  /** Aborts when the lease is lost: the event may be delivered to another member now, or to this handler again. */
  readonly signal: AbortSignal;
}

/** Handles an event, which is acknowledged when the handler returns, redelivered if it throws, and given up after a {@link RejectError}. */
export type Handler<T = unknown> = (event: BusEvent<T>, delivery: Delivery) => void | Promise<void>;

/** Turns an event into others. They are published, and the event is marked and acknowledged, in one commit. */
export type Transformer<T = unknown> = (
  event: BusEvent<T>,
  delivery: Delivery,
) => Iterable<OutgoingEvent> | undefined | Promise<Iterable<OutgoingEvent> | undefined>;

/** Thrown by a handler to choose when its event is redelivered. After any other error the delay grows per attempt. */
export class NackError extends Error {
  override readonly name = "NackError";
  /** Milliseconds until the redelivery. */
  readonly delayMs: number | undefined;

  /** `reason` goes into the dead letter if this was the last attempt. */
  constructor(reason: string, options: { delayMs?: number; cause?: unknown } = {}) {
    super(reason, { cause: options.cause });
    this.delayMs = options.delayMs;
  }
}

/**
 * Thrown by a handler to reject its event, for events that no retry can help: it becomes a dead letter at once, however
 * many attempts it has left.
 */
export class RejectError extends Error {
  override readonly name = "RejectError";

  /** `reason` goes into the dead letter. */
  constructor(reason: string, options: { cause?: unknown } = {}) {
    super(reason, { cause: options.cause });
  }
}

const MAX_REASON_CHARACTERS = 1024;

/** What a NACK says besides the event. Members that are `undefined` are not sent. */
export interface NackMembers {
  reason: string;
  delay_ms?: number | undefined;
  dead?: true;
}

/** Returns the members of the NACK for a handler's error. */
export function nackMembers(error: unknown): NackMembers {
  const text = error instanceof Error ? error.message || error.name : String(error);
  const reason = text.slice(0, MAX_REASON_CHARACTERS);
  if (error instanceof RejectError) return { reason, dead: true };
  return { reason, delay_ms: error instanceof NackError ? error.delayMs : undefined };
}
