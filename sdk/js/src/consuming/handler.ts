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

/** Handles an event, which is acknowledged when the handler returns and redelivered if it throws. */
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

const MAX_REASON_CHARACTERS = 1024;

/** Returns the members of the NACK for a handler's error. */
export function nackMembers(error: unknown): { reason: string; delay_ms: number | undefined } {
  const text = error instanceof Error ? error.message || error.name : String(error);
  const delay_ms = error instanceof NackError ? error.delayMs : undefined;
  return { reason: text.slice(0, MAX_REASON_CHARACTERS), delay_ms };
}
