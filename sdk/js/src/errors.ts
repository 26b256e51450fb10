/** Codes with which the bus refuses, and whether the same can succeed later. */
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
  already_subscribed: false,
  not_subscribed: false,
  unknown_id: false,
  lease_lost: false,
  unknown_topic: false,
  schema_violation: false,
  conflict: false,
  storage_unavailable: true,
  shutting_down: true,
  internal: false,
} as const;

/** A code with which the bus refuses. */
export type ErrorCode = keyof typeof RETRYABLE_BY_CODE;

/** All codes with which the bus refuses. */
export const ERROR_CODES = Object.keys(RETRYABLE_BY_CODE) as readonly ErrorCode[];

/** Codes of errors that arise in the client itself. */
export type ClientErrorCode = "disconnected" | "timeout" | "queue_full" | "closed" | "ended" | "bad_answer";

/** Every error of this library. `code` says which. */
export abstract class PrombusError extends Error {
  /** What went wrong, for programs. */
  abstract readonly code: ErrorCode | ClientErrorCode;
  /** Whether the same can succeed later. */
  abstract readonly isRetryable: boolean;
  /** How many milliseconds to wait before that, where the bus says so. */
  readonly retryAfterMs: number | undefined = undefined;
}

/** The bus refused what was asked; by WebSocket and by HTTP alike. */
export class RefusedError extends PrombusError {
  override readonly name = "RefusedError";
  /** The code that the bus gave. A newer bus may have codes that are not in {@link ERROR_CODES}. */
  readonly code: ErrorCode;
  override readonly retryAfterMs: number | undefined;

  /** What the bus answered. */
  constructor(code: string, message: string, retryAfterMs?: number) {
    super(message);
    this.code = code as ErrorCode;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same can succeed later. A limit of rate without a time means that no time helps. */
  get isRetryable(): boolean {
    if (this.code === "rate_limited") return this.retryAfterMs !== undefined;
    return RETRYABLE_BY_CODE[this.code] ?? false;
  }
}

/** The connection was lost before the answer came, or is not there. */
export class DisconnectedError extends PrombusError {
  override readonly name = "DisconnectedError";
  readonly code = "disconnected";
  readonly isRetryable = true;
}

/** It took longer than the caller allows. It may be done nonetheless: publish again with the same id. */
export class TimeoutError extends PrombusError {
  override readonly name = "TimeoutError";
  readonly code = "timeout";
  readonly isRetryable = true;
}

/** More callers wait for room in the window than the client keeps. Await what you publish. */
export class QueueFullError extends PrombusError {
  override readonly name = "QueueFullError";
  readonly code = "queue_full";
  readonly isRetryable = true;
}

/** The client or the subscription was closed by its user. */
export class ClosedError extends PrombusError {
  override readonly name = "ClosedError";
  readonly code = "closed";
  readonly isRetryable = false;
}

/** The server closed the connection in a way that connecting again would not mend. */
export class EndedError extends PrombusError {
  override readonly name = "EndedError";
  readonly code = "ended";
  readonly isRetryable = false;
  /** The WebSocket close code. */
  readonly closeCode: number;

  /** The close frame that came. */
  constructor(closeCode: number, reason: string) {
    super(`the server closed the connection for good: ${closeCode} ${reason}`.trimEnd());
    this.closeCode = closeCode;
  }
}

/** What came is not what the protocol says. */
export class BadAnswerError extends PrombusError {
  override readonly name = "BadAnswerError";
  readonly code = "bad_answer";
  readonly isRetryable = false;
}

/** Whether the same can succeed later. False for errors that are not of this library. */
export function isRetryable(error: unknown): boolean {
  return error instanceof PrombusError && error.isRetryable;
}

/** Whether the limits of the bus never admit as much together, so that only less of it can succeed. */
export function isTooMuchTogether(error: unknown): boolean {
  return error instanceof RefusedError && error.code === "rate_limited" && error.retryAfterMs === undefined;
}
