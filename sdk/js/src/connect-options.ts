import type { BackoffOptions, Chance } from "./backoff.js";
import type { StateListener, TokenSource } from "./connection.js";
import type { WindowLimits } from "./publishing/window.js";

/** How to connect. */
export interface ConnectOptions {
  /**
   * Shown on every connection. A function is asked each time, and when the bus says that the token has expired, so that
   * it can give a fresh one.
   */
  token?: TokenSource;
  /** Where HTTP is, for `replay`, `export` and `stream`, if the address of the bus does not say so. */
  httpUrl?: string;
  /** Milliseconds in which the first connection has to be there; it is tried again until then. 10,000 if absent. */
  connectTimeoutMs?: number;
  /** Calls connecting off. */
  signal?: AbortSignal;
  /** How long to wait before connecting again: at most 100 ms at first and 10 s later if absent, with full jitter. */
  reconnect?: Partial<BackoffOptions>;
  /** Milliseconds that a frame of `publish` may take, all attempts together. 120,000 if absent; `Infinity` is no end. */
  timeoutMs?: number;
  /** Frames that may be without an answer at a time. 1000 if absent. */
  window?: number;
  /** Characters of frames that may be without an answer at a time. 16,777,216 if absent. */
  windowCharacters?: number;
  /** Calls of `publish` that may wait for room in the window; one more is `queue_full`. 10,000 if absent. */
  maxWaiting?: number;
  /** The largest frame that the bus takes (its `gateway.max_frame_bytes`). 1,048,576 if absent. */
  maxFrameBytes?: number;
  /** Told how the connection is, from the first attempt on. */
  onState?: StateListener;
  /** Where chance comes from, for tests. */
  chance?: Chance;
}

const CONNECT_TIMEOUT_MS = 10_000;
const RECONNECT: BackoffOptions = { minMs: 100, maxMs: 10_000 };
const PUBLISH_TIMEOUT_MS = 120_000;
const WINDOW_FRAMES = 1000;
const WINDOW_CHARACTERS = 16 * 1024 * 1024;
const WAITING_CALLS = 10_000;
const FRAME_BYTES = 1024 * 1024;

/** Options with nothing left open. */
export interface ConnectSettings {
  readonly connectTimeoutMs: number;
  readonly reconnect: BackoffOptions;
  readonly timeoutMs: number;
  readonly window: WindowLimits;
  readonly maxFrameBytes: number;
  readonly chance: Chance;
}

/** Fills in what was not said. */
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
    chance: options.chance ?? Math.random,
  };
}
