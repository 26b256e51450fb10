import type { BackoffOptions, RandomSource } from "./backoff.js";
import type { StateListener, TokenSource } from "./connection.js";
import type { WindowLimits } from "./publishing/send-window.js";

/** Options of `connect`. */
export interface ConnectOptions {
  /**
   * The token presented on every connection. A function is called before each connection, and again when the bus reports
   * that the token has expired, so that it can return a fresh one.
   */
  token?: TokenSource;
  /** The HTTP address for `replay`, `export` and `stream`, if it cannot be derived from the address of the bus. */
  httpUrl?: string;
  /** Milliseconds within which the first connection must succeed; the client retries until then. Default: 10,000. */
  connectTimeoutMs?: number;
  /** Cancels connecting. */
  signal?: AbortSignal;
  /** The back-off between reconnects, with full jitter. Default: at most 100 ms at first, at most 10 s later. */
  reconnect?: Partial<BackoffOptions>;
  /** Milliseconds that a publish may take, all attempts included. Default: 120,000. `Infinity` means no limit. */
  timeoutMs?: number;
  /** The largest number of unanswered publish frames. Default: 1000. */
  window?: number;
  /** The largest total size of unanswered publish frames, in characters. Default: 16,777,216. */
  windowCharacters?: number;
  /** The number of publishes that may wait for room in the window; one more fails with `queue_full`. Default: 10,000. */
  maxWaiting?: number;
  /** The largest frame that the bus accepts (its `gateway.max_frame_bytes`). Default: 1,048,576. */
  maxFrameBytes?: number;
  /** Called on every change of the connection's state, starting with the first attempt to connect. */
  onState?: StateListener;
  /** The source of the back-off's jitter, for tests. Default: `Math.random`. */
  random?: RandomSource;
}

const CONNECT_TIMEOUT_MS = 10_000;
const RECONNECT: BackoffOptions = { minMs: 100, maxMs: 10_000 };
const PUBLISH_TIMEOUT_MS = 120_000;
const WINDOW_FRAMES = 1000;
const WINDOW_CHARACTERS = 16 * 1024 * 1024;
const WAITING_CALLS = 10_000;
const FRAME_BYTES = 1024 * 1024;

/** {@link ConnectOptions} with their defaults filled in. */
export interface ConnectSettings {
  readonly connectTimeoutMs: number;
  readonly reconnect: BackoffOptions;
  readonly timeoutMs: number;
  readonly window: WindowLimits;
  readonly maxFrameBytes: number;
  readonly random: RandomSource;
}

/** Fills in the defaults. */
export function connectSettings(options: ConnectOptions): ConnectSettings {
  return {
    connectTimeoutMs: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
    reconnect: { ...RECONNECT, ...options.reconnect },
    timeoutMs: options.timeoutMs ?? PUBLISH_TIMEOUT_MS,
    window: {
      frames: options.window ?? WINDOW_FRAMES,
      characters: options.windowCharacters ?? WINDOW_CHARACTERS,
      waiting: options.maxWaiting ?? WAITING_CALLS,
    },
    maxFrameBytes: options.maxFrameBytes ?? FRAME_BYTES,
    random: options.random ?? Math.random,
  };
}
