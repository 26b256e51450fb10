/**
 * Client for the Prombus event bus, for Node 20 and newer and for browsers.
 *
 * @packageDocumentation
 */
export type { BackoffOptions, RandomSource } from "./backoff.js";
export { Client, type CloseOptions, connect } from "./client.js";
export type { ConnectOptions } from "./connect-options.js";
export type { StateListener, TokenSource } from "./connection.js";
export { type Delivery, type Handler, NackError, RejectError, type Transformer } from "./consuming/handler.js";
export type { ExactlyOnceOptions, SubscribeOptions, TransformOptions } from "./consuming/subscribe-options.js";
export { type StopOptions, Subscription } from "./consuming/subscription.js";
export type { CallOptions } from "./deadline.js";
export { DEFAULT_MARK_TTL_MS, type DedupeStore, MemoryDedupe } from "./dedupe.js";
export {
  BadAnswerError,
  type ClientErrorCode,
  ClosedError,
  DamagedError,
  type DamagedRange,
  DisconnectedError,
  EndedError,
  type EndReason,
  ERROR_CODES,
  type ErrorCode,
  isRetryable,
  PrombusError,
  QueueFullError,
  RefusedError,
  SubscriptionEndedError,
  TimeoutError,
} from "./errors.js";
export type { BusEvent, EventOptions, EventToPublish, OutgoingEvent, Published } from "./event.js";
export type { DamageOptions } from "./http/damage.js";
export type { ExportOptions } from "./http/export.js";
export type { ReadFrom, ReplayOptions } from "./http/replay.js";
export type { StreamGap, StreamOptions } from "./http/stream.js";
export type { PublishCallOptions, PublishOptions } from "./publishing/publisher.js";
export type { ConnectionState } from "./session/effect.js";
