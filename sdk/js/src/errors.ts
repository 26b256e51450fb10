/** The error codes of the bus, and whether the same request can succeed later. */
const RETRYABLE_BY_CODE = {
  bad_json: false,
  bad_frame: false,
  unknown_op: false,
  bad_topic: false,
  bad_group: false,
  payload_too_large: false,
  unauthorized: false,
  bad_token: false,
  forbidden: false,
  rate_limited: true,
  limit_exceeded: false,
  already_subscribed: false,
  not_subscribed: false,
  unknown_id: false,
  lease_lost: false,
  unknown_topic: false,
  unknown_group: false,
  schema_violation: false,
  conflict: false,
  storage_unavailable: true,
  shutting_down: true,
  internal: false,
} as const;

/** An error code of the bus. */
export type ErrorCode = keyof typeof RETRYABLE_BY_CODE;

/** All error codes of the bus. */
export const ERROR_CODES = Object.keys(RETRYABLE_BY_CODE) as readonly ErrorCode[];

/** The error codes of the client itself. */
export type ClientErrorCode =
  | "disconnected"
  | "timeout"
  | "queue_full"
  | "closed"
  | "ended"
  | "subscription_ended"
  | "bad_answer"
  | "damaged";

/** The base class of all errors of this library. */
export abstract class PrombusError extends Error {
  /** Identifies the error; stable, unlike the message. */
  abstract readonly code: ErrorCode | ClientErrorCode;
  /** True if the same request can succeed later. */
  abstract readonly isRetryable: boolean;
  /** Milliseconds to wait before retrying, if the bus gave a time. */
  readonly retryAfterMs: number | undefined = undefined;
}

/** The bus refused a request, over WebSocket or HTTP. */
export class RefusedError extends PrombusError {
  override readonly name = "RefusedError";
  /** The error code from the bus. A newer bus may send codes that are not in {@link ERROR_CODES}. */
  readonly code: ErrorCode;
  override readonly retryAfterMs: number | undefined;

  /** Takes what the bus answered. */
  constructor(code: string, message: string, retryAfterMs?: number) {
    super(message);
    this.code = code as ErrorCode;
    this.retryAfterMs = retryAfterMs;
  }

  /** True if the same request can succeed later. A rate limit without a time means that waiting does not help. */
  get isRetryable(): boolean {
    if (this.code === "rate_limited") return this.retryAfterMs !== undefined;
    return RETRYABLE_BY_CODE[this.code] ?? false;
  }
}

/** There is no connection, or it was lost before the answer arrived. */
export class DisconnectedError extends PrombusError {
  override readonly name = "DisconnectedError";
  readonly code = "disconnected";
  readonly isRetryable = true;
}

/** The call took too long. The bus may still have performed it, so publish again with the same id. */
export class TimeoutError extends PrombusError {
  override readonly name = "TimeoutError";
  readonly code = "timeout";
  readonly isRetryable = true;
}

/** Too many publishes wait for room in the window. Await your publishes. */
export class QueueFullError extends PrombusError {
  override readonly name = "QueueFullError";
  readonly code = "queue_full";
  readonly isRetryable = true;
}

/** The user closed the client or stopped the subscription. */
export class ClosedError extends PrombusError {
  override readonly name = "ClosedError";
  readonly code = "closed";
  readonly isRetryable = false;
}

/** The server closed the connection with a code after which reconnecting does not help. */
export class EndedError extends PrombusError {
  override readonly name = "EndedError";
  readonly code = "ended";
  readonly isRetryable = false;
  /** The WebSocket close code. */
  readonly closeCode: number;

  /** Takes the code and reason of the close frame. */
  constructor(closeCode: number, reason: string) {
    super(`the server ended the connection: ${closeCode} ${reason}`.trimEnd());
    this.closeCode = closeCode;
  }
}

/** Why the server ended a subscription. A newer server may have other reasons. */
export type EndReason = "topic_deleted" | "group_deleted";

/** The server ended a subscription, because its topic or group was deleted. Subscribing again creates a new group. */
export class SubscriptionEndedError extends PrombusError {
  override readonly name = "SubscriptionEndedError";
  readonly code = "subscription_ended";
  readonly isRetryable = false;
  /** Why it ended. */
  readonly reason: EndReason;

  /** Takes what the server sent. */
  constructor(topic: string, group: string, reason: string) {
    super(`the subscription to ${topic} as ${group} has ended: ${reason}`);
    this.reason = reason as EndReason;
  }
}

/** The server sent something that violates the protocol. */
export class BadAnswerError extends PrombusError {
  override readonly name = "BadAnswerError";
  readonly code = "bad_answer";
  readonly isRetryable = false;
}

/** Events that the server has stored but cannot read back, because its storage is damaged. */
export interface DamagedRange {
  /** The `seq` of the first of them. */
  first_seq: number;
  /** The `seq` of the last of them. */
  last_seq: number;
}

/** The server cannot read the next events back. With the option `onDamaged`, a read continues behind them. */
export class DamagedError extends PrombusError {
  override readonly name = "DamagedError";
  readonly code = "damaged";
  readonly isRetryable = false;
  /** The events that cannot be read. */
  readonly range: DamagedRange;

  /** Takes the events that cannot be read. */
  constructor(range: DamagedRange) {
    super(`events ${range.first_seq} to ${range.last_seq} are damaged`);
    this.range = range;
  }
}

/** Returns `true` if the same request can succeed later. Always `false` for errors of other libraries. */
export function isRetryable(error: unknown): boolean {
  return error instanceof PrombusError && error.isRetryable;
}

/** Returns `true` if the request exceeds the whole capacity of a rate limit, so that only a smaller one can succeed. */
export function exceedsRateCapacity(error: unknown): boolean {
  return error instanceof RefusedError && error.code === "rate_limited" && error.retryAfterMs === undefined;
}
