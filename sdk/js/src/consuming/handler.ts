import type { BusEvent, OutgoingEvent } from "../event.js";

/** What a handler knows about the delivery of its event. */
export interface Delivery {
  /** The group that the event was delivered to. */
  readonly group: string;
  /** How often this event was delivered to this group, from 1. */
  readonly attempt: number;
  /** When the lease ends, in milliseconds since 1970. It moves: the client extends the lease while a handler runs. */
  readonly deadline: number;
  /** Aborts when the lease is lost: somebody else may get the event now, or this handler later. */
  readonly signal: AbortSignal;
}

/** Handles an event. When it returns the event is acknowledged; when it throws it comes again. */
export type Handler<T = unknown> = (event: BusEvent<T>, delivery: Delivery) => void | Promise<void>;

/** Makes events of an event. They are published, and the event is acknowledged and marked, in one commit. */
export type Transformer<T = unknown> = (
  event: BusEvent<T>,
  delivery: Delivery,
) => Iterable<OutgoingEvent> | undefined | Promise<Iterable<OutgoingEvent> | undefined>;

/** Thrown by a handler to say when its event comes again. Any other error does so after a time that grows. */
export class NackError extends Error {
  override readonly name = "NackError";
  /** Milliseconds until the event comes again. */
  readonly delayMs: number | undefined;

  /** `reason` is for the dead letter, if this was the last attempt. */
  constructor(reason: string, options: { delayMs?: number; cause?: unknown } = {}) {
    super(reason, { cause: options.cause });
    this.delayMs = options.delayMs;
  }
}

const REASON_CHARACTERS = 1024;

/** What a NACK says about an error. */
export function nackMembers(error: unknown): { reason: string; delay_ms: number | undefined } {
  const text = error instanceof Error ? error.message || error.name : String(error);
  const delay_ms = error instanceof NackError ? error.delayMs : undefined;
  return { reason: text.slice(0, REASON_CHARACTERS), delay_ms };
}
