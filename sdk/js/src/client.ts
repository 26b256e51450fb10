import { type BusAddresses, busAddresses } from "./addresses.js";
import { Backoff } from "./backoff.js";
import { type ConnectOptions, connectSettings } from "./connect-options.js";
import { Connection, type StateListener, type TokenSource, tokenKind } from "./connection.js";
import { AtLeastOnce } from "./consuming/at-least-once.js";
import { Consumer } from "./consuming/consumer.js";
import { Finished } from "./consuming/finished.js";
import type { Delivery, Handler, Transformer } from "./consuming/handler.js";
import { MarkedByBus } from "./consuming/marked-by-bus.js";
import { MarkedByStore } from "./consuming/marked-by-store.js";
import { Operations } from "./consuming/operations.js";
import type { Strategy } from "./consuming/strategy.js";
import {
  consumerSettings,
  type ExactlyOnceOptions,
  type SubscribeOptions,
  type TransformOptions,
} from "./consuming/subscribe-options.js";
import { Subscription } from "./consuming/subscription.js";
import { Transforming } from "./consuming/transforming.js";
import { Deadline } from "./deadline.js";
import { DEFAULT_MARK_TTL_MS, type DedupeStore } from "./dedupe.js";
import { ClosedError, type PrombusError, RefusedError, TimeoutError } from "./errors.js";
import type { BusEvent, EventToPublish, OutgoingEvent, Published } from "./event.js";
import { type ExportOptions, exportEvents } from "./http/export.js";
import { HttpApi } from "./http/http-api.js";
import { type ReplayOptions, replay } from "./http/replay.js";
import { type StreamOptions, streamEvents } from "./http/stream.js";
import { IdSource } from "./id-source.js";
import { type PublishCallOptions, Publisher, type PublishOptions } from "./publishing/publisher.js";
import { Window } from "./publishing/window.js";
import { Binding } from "./session/binding.js";
import type { ConnectionState } from "./session/effect.js";
import { Session } from "./session/session.js";
import { findOpenSocket } from "./websocket/open-socket.js";
import type { OpenSocket } from "./websocket/socket.js";

/** How to close. */
export interface CloseOptions {
  /** Milliseconds that running handlers and unanswered publishes have. 30,000 if absent. */
  timeoutMs?: number;
}

const CLOSE_TIMEOUT_MS = 30_000;
/** Handlers that finished without their marks being sure: more than are ever lent at a time. */
const FINISHED_REMEMBERED = 20_000;

/**
 * Connects to a bus. `url` is that of HTTP (`http://127.0.0.1:8083`), where the WebSocket is at `/ws`, or that of the
 * WebSocket gateway alone (`ws://127.0.0.1:8090/`).
 *
 * Resolves when the connection is there and the token accepted. It is tried again until `connectTimeoutMs` have
 * passed; a token that is refused is an error at once.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Client> {
  const addresses = busAddresses(url, options.httpUrl);
  const deadline = new Deadline(
    { timeoutMs: connectSettings(options).connectTimeoutMs, signal: options.signal },
    `connecting to ${addresses.webSocket.host}`,
  );
  try {
    const client = new Client(addresses, options, await findOpenSocket());
    await client.firstConnected(deadline.signal);
    return client;
  } finally {
    deadline.release();
  }
}

/**
 * A connection to a bus that comes back by itself. Made by {@link connect}. It is a {@link DedupeStore}, too: that of the
 * bus.
 */
export class Client implements DedupeStore {
  /** Resolves when it is closed: with the error that ended it, or with nothing if its user closed it. */
  readonly ended: Promise<PrombusError | undefined>;
  readonly #connection: Connection;
  readonly #publisher: Publisher;
  readonly #window: Window;
  readonly #backoff: Backoff;
  readonly #http: HttpApi | undefined;
  readonly #maxFrameBytes: number;
  readonly #subscriptions = new Set<Subscription>();
  readonly #listeners = new Set<StateListener>();
  #lastFailure: PrombusError | undefined;
  #settleEnded: (error: PrombusError | undefined) => void = () => undefined;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(addresses: BusAddresses, options: ConnectOptions, openSocket: OpenSocket) {
    const now = () => performance.now();
    const settings = connectSettings(options);
    this.#backoff = new Backoff(settings.reconnect, settings.chance);
    this.#maxFrameBytes = settings.maxFrameBytes;
    this.#window = new Window(settings.window);
    if (options.onState) this.#listeners.add(options.onState);
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
    this.#connection = new Connection(
      new Session(this.#backoff, tokenKind(options.token)),
      addresses.webSocket.href,
      openSocket,
      now,
      options.token,
      (state, because) => this.#stateChanged(state, because),
    );
    const ids = new IdSource(Date.now, (bytes) => crypto.getRandomValues(bytes));
    this.#publisher = new Publisher(
      this.#connection,
      this.#window,
      () => ids.next(),
      this.#maxFrameBytes,
      settings.timeoutMs,
    );
    this.#http = addresses.http && new HttpApi(addresses.http, () => this.#connection.token());
    this.#connection.start();
  }

  /** How the connection is now. */
  get state(): ConnectionState {
    return this.#connection.state;
  }

  /** Frames of publishes that have no answer yet. */
  get inFlight(): number {
    return this.#window.frames;
  }

  /** Tells `listener` about every change of the connection. Call what it returns to end that. */
  onState(listener: StateListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Shows another token, now and on every connection that follows. The newest counts. */
  async authenticate(token: TokenSource): Promise<void> {
    await this.#connection.authenticate(token);
  }

  /**
   * Publishes an event. Resolves when it is stored. If the connection breaks before the answer the same frame is sent
   * again, and stored once by its id. Refusals that pass are tried again, after the time that the bus asks for.
   *
   * Events of one topic are stored in the order of the calls, through lost connections, too. Only a refusal that passes
   * can change that: what was sent behind the refused frame may be stored before it. `window: 1` rules that out.
   *
   * It fails with `timeout` after two minutes unless `timeoutMs` says otherwise. When 1000 frames (`window`) have no
   * answer yet a call waits for room: that is the back-pressure.
   */
  publish<T>(topic: string, payload: T, options: PublishOptions = {}): Promise<Published> {
    return this.#publisher.publish(topic, payload, options);
  }

  /**
   * Publishes many events in few frames, of at most 1000 events and `maxFrameBytes` each; every frame is stored as a
   * whole or not at all. Gives their results in the order of the events. After an error some frames may be stored: give
   * the events ids of your own if you want to publish them again.
   *
   * Frames are smaller where the limits of the bus admit fewer events together. `timeoutMs` is for all of them; without
   * it each frame has the time that `connect` was given.
   */
  publishBatch<T>(
    topic: string,
    events: Iterable<EventToPublish<T>>,
    options: PublishCallOptions = {},
  ): Promise<Published[]> {
    return this.#publisher.publishBatch(topic, events, options);
  }

  /**
   * Consumes a topic as a member of `group`, at least once: an event is acknowledged when its handler returns, and comes
   * again when it throws. Resolves when the bus has accepted it. Leases are extended while handlers run.
   */
  subscribe<T = unknown>(
    topic: string,
    group: string,
    handler: Handler<T>,
    options: SubscribeOptions = {},
  ): Promise<Subscription> {
    const operations = this.#operations(topic, group);
    return this.#consume(topic, group, options, operations, new AtLeastOnce(operations), handler as Handler);
  }

  /**
   * Consumes a topic and handles each event once: what is marked is skipped, and after the handler the event is marked
   * and acknowledged, with the bus as store in one commit. A handler that throws leaves no mark, and its event comes
   * again.
   *
   * The handler of an event runs again only where nobody can know that it finished: when the process ends, or is held up
   * for longer than the lease, between its beginning and its mark.
   */
  subscribeExactlyOnce<T = unknown>(
    topic: string,
    group: string,
    handler: Handler<T>,
    options: ExactlyOnceOptions = {},
  ): Promise<Subscription> {
    const { ttlMs = DEFAULT_MARK_TTL_MS, dedupe } = options;
    const operations = this.#operations(topic, group, ttlMs);
    const finished = new Finished(FINISHED_REMEMBERED);
    const strategy = dedupe
      ? new MarkedByStore(dedupe, group, ttlMs, operations, finished)
      : new MarkedByBus(operations, finished);
    return this.#consume(topic, group, options, operations, strategy, handler as Handler);
  }

  /**
   * Consumes a topic and publishes what the handler makes of each event: that, the mark and the acknowledgement are one
   * commit. So each event leads to its results exactly once, whatever crashes.
   */
  transformExactlyOnce<T = unknown>(
    topic: string,
    group: string,
    handler: Transformer<T>,
    options: TransformOptions = {},
  ): Promise<Subscription> {
    const { ttlMs = DEFAULT_MARK_TTL_MS } = options;
    const operations = this.#operations(topic, group, ttlMs);
    const strategy = new Transforming(operations, ttlMs);
    const transform = handler as Transformer;
    return this.#consume<Iterable<OutgoingEvent> | undefined>(topic, group, options, operations, strategy, transform);
  }

  /** Whether the bus has a mark that `group` has handled this event. */
  seen(topic: string, group: string, id: string): Promise<boolean> {
    return this.#operations(topic, group).seen(id);
  }

  /** Marks at the bus that `group` has handled this event, for `ttlMs` milliseconds (7 days if absent). */
  mark(topic: string, group: string, id: string, ttlMs: number = DEFAULT_MARK_TTL_MS): Promise<void> {
    return this.#operations(topic, group, ttlMs).mark(id);
  }

  /** Reads the events that a topic holds, by pages, up to its end. */
  replay<T = unknown>(topic: string, options: ReplayOptions = {}): AsyncGenerator<BusEvent<T>, void, undefined> {
    return replay(this.#needHttp(), this.#backoff, topic, options);
  }

  /**
   * Reads the events that a topic holds as one stream. It goes on behind the last event when the connection breaks;
   * its end is then that of the topic at that moment.
   */
  export<T = unknown>(topic: string, options: ExportOptions = {}): AsyncGenerator<BusEvent<T>, void, undefined> {
    return exportEvents(this.#needHttp(), this.#backoff, topic, options);
  }

  /** Follows a topic as it grows, without a group. It does not end by itself. */
  stream<T = unknown>(topic: string, options: StreamOptions = {}): AsyncGenerator<BusEvent<T>, void, undefined> {
    return streamEvents(this.#needHttp(), this.#backoff, topic, options);
  }

  /**
   * Closes: subscriptions stop when their running handlers are done, publishes that have no answer yet are waited for.
   * What is not done in time fails with `closed`.
   */
  close(options: CloseOptions = {}): Promise<void> {
    this.#closing ??= this.#close(options.timeoutMs ?? CLOSE_TIMEOUT_MS);
    return this.#closing;
  }

  /** The same as {@link Client.close}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal Resolves when it is connected for the first time. */
  firstConnected(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = () => settle(() => reject(withCause(signal?.reason, this.#lastFailure)), true);
      const settle = (how: () => void, closes = false) => {
        forget();
        signal?.removeEventListener("abort", abort);
        if (closes) this.#connection.close();
        how();
      };
      const forget = this.onState((state, because) => {
        if (state === "connected") settle(resolve);
        if (state === "closed") settle(() => reject(because));
      });
      signal?.addEventListener("abort", abort, { once: true });
      if (signal?.aborted) abort();
    });
  }

  #operations(topic: string, group: string, ttlMs = DEFAULT_MARK_TTL_MS): Operations {
    return new Operations(this.#connection, topic, group, ttlMs, this.#maxFrameBytes);
  }

  async #consume<Result>(
    topic: string,
    group: string,
    options: SubscribeOptions,
    operations: Operations,
    strategy: Strategy<Result>,
    handler: (event: BusEvent, delivery: Delivery) => Result | Promise<Result>,
  ): Promise<Subscription> {
    if (this.state === "closed" || this.#closing) throw this.#connection.endedBy ?? new ClosedError("it is closed");
    if (this.#connection.isBound(topic, group)) {
      throw new RefusedError("already_subscribed", `this client subscribes to ${group} on ${topic} already`);
    }
    const settings = consumerSettings(options);
    const now = () => performance.now();
    const consumer = new Consumer(group, settings, operations, strategy, handler, now);
    const binding = new Binding(topic, group, settings.wire);
    const subscription = new Subscription(this.#connection, binding, consumer as Consumer<unknown>);
    this.#connection.bind(binding, consumer);
    const deadline = new Deadline(options, `subscribing to ${topic}`);
    try {
      await within(consumer.firstBound, deadline.signal);
    } catch (error) {
      await subscription.stop({ timeoutMs: 0 });
      throw error;
    } finally {
      deadline.release();
    }
    this.#subscriptions.add(subscription);
    void subscription.ended.then(() => this.#subscriptions.delete(subscription));
    return subscription;
  }

  async #close(timeoutMs: number): Promise<void> {
    const started = performance.now();
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.stop({ timeoutMs })));
    const left = Math.max(0, timeoutMs - (performance.now() - started));
    await this.#window.empty(left);
    this.#connection.close();
  }

  #needHttp(): HttpApi {
    if (this.#http) return this.#http;
    throw new TypeError("where HTTP is, is not known: connect to http://HOST:PORT, or give httpUrl");
  }

  #stateChanged(state: ConnectionState, because: PrombusError | undefined): void {
    this.#lastFailure = because ?? this.#lastFailure;
    for (const listener of [...this.#listeners]) {
      try {
        listener(state, because);
      } catch (error) {
        // A fault of the listener must not stop the connection; it is reported as one that nobody caught.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
    if (state === "closed") this.#settleEnded(because);
  }
}

/** A timeout says what failed last. */
function withCause(reason: unknown, cause: PrombusError | undefined): unknown {
  if (!(reason instanceof TimeoutError) || cause === undefined) return reason;
  return new TimeoutError(`${reason.message}: ${cause.message}`, { cause });
}

function within<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
