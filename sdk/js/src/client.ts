import { type BusAddresses, busAddresses } from "./addresses.js";
import { Backoff } from "./backoff.js";
import { type ConnectOptions, connectSettings } from "./connect-options.js";
import { Connection, type StateListener, type TokenSource, tokenKind } from "./connection.js";
import { AtLeastOnce } from "./consuming/at-least-once.js";
import { BusDedupe } from "./consuming/bus-dedupe.js";
import { Consumer } from "./consuming/consumer.js";
import { GroupOperations } from "./consuming/group-operations.js";
import type { Delivery, Handler, Transformer } from "./consuming/handler.js";
import type { DeliverySemantics } from "./consuming/semantics.js";
import { StoreDedupe } from "./consuming/store-dedupe.js";
import {
  consumerSettings,
  type ExactlyOnceOptions,
  type SubscribeOptions,
  type TransformOptions,
} from "./consuming/subscribe-options.js";
import { Subscription } from "./consuming/subscription.js";
import { TransformAndPublish } from "./consuming/transform-and-publish.js";
import { UnconfirmedMarks } from "./consuming/unconfirmed-marks.js";
import { Deadline } from "./deadline.js";
import { DEFAULT_MARK_TTL_MS, type DedupeStore } from "./dedupe.js";
import { ClosedError, type PrombusError, RefusedError } from "./errors.js";
import type { BusEvent, EventToPublish, OutgoingEvent, Published } from "./event.js";
import { type ExportOptions, exportEvents } from "./http/export.js";
import { HttpApi } from "./http/http-api.js";
import { type ReplayOptions, replay } from "./http/replay.js";
import { type StreamOptions, streamEvents } from "./http/stream.js";
import { IdGenerator } from "./id-generator.js";
import { type PublishCallOptions, Publisher, type PublishOptions } from "./publishing/publisher.js";
import { SendWindow } from "./publishing/send-window.js";
import { Binding } from "./session/binding.js";
import type { ConnectionState } from "./session/effect.js";
import { Session } from "./session/session.js";
import { StateListeners } from "./state-listeners.js";
import { findOpenSocket } from "./websocket/open-socket.js";
import type { OpenSocket } from "./websocket/socket.js";

/** Options of {@link Client.close}. */
export interface CloseOptions {
  /** Milliseconds to wait for running handlers and unanswered publishes. Default: 30,000. */
  timeoutMs?: number;
}

const CLOSE_TIMEOUT_MS = 30_000;
/** More than a subscription can have in flight. */
const UNCONFIRMED_MARKS = 20_000;

const now = () => performance.now();

/**
 * Connects to a bus. `url` is the HTTP address (`http://127.0.0.1:8083`), whose WebSocket gateway is at `/ws`, or the
 * address of the WebSocket gateway alone (`ws://127.0.0.1:8090/`).
 *
 * Resolves when the connection is open and the bus has accepted the token. Retries until `connectTimeoutMs` have passed;
 * a refused token fails at once.
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
 * A connection to a bus that reconnects on its own. Created by {@link connect}. It is also the {@link DedupeStore} of the
 * bus.
 */
export class Client implements DedupeStore {
  /** Resolves when the client is closed: with the error that ended it, or with `undefined` if its user closed it. */
  readonly ended: Promise<PrombusError | undefined>;
  readonly #connection: Connection;
  readonly #publisher: Publisher;
  readonly #window: SendWindow;
  readonly #backoff: Backoff;
  readonly #http: HttpApi | undefined;
  readonly #maxFrameBytes: number;
  readonly #subscriptions = new Set<Subscription>();
  readonly #listeners = new StateListeners();
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(addresses: BusAddresses, options: ConnectOptions, openSocket: OpenSocket) {
    const settings = connectSettings(options);
    this.#backoff = new Backoff(settings.reconnect, settings.random);
    this.#maxFrameBytes = settings.maxFrameBytes;
    this.#window = new SendWindow(settings.window);
    this.ended = this.#listeners.ended;
    if (options.onState) this.#listeners.add(options.onState);
    this.#connection = new Connection(
      new Session(this.#backoff, tokenKind(options.token)),
      addresses.webSocket.href,
      openSocket,
      now,
      options.token,
      (state, error) => this.#listeners.notify(state, error),
    );
    const ids = new IdGenerator(Date.now, (bytes) => crypto.getRandomValues(bytes));
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

  /** The state of the connection. */
  get state(): ConnectionState {
    return this.#connection.state;
  }

  /** The number of unanswered publish frames. */
  get inFlight(): number {
    return this.#window.frames;
  }

  /** Calls `listener` on every change of the connection's state. Returns a function that removes the listener. */
  onState(listener: StateListener): () => void {
    return this.#listeners.add(listener);
  }

  /** Presents another token, now and on every later connection. The latest token determines what is allowed. */
  async authenticate(token: TokenSource): Promise<void> {
    await this.#connection.authenticate(token);
  }

  /**
   * Publishes an event. Resolves when it is stored. If the connection is lost before the answer, the client sends the
   * same frame again and the bus stores the event once, by its id. Temporary refusals are retried after the time that the
   * bus asks for.
   *
   * Events of one topic are stored in the order of the calls, even across reconnects. The exception is a temporary
   * refusal: frames sent after the refused one may be stored before it. `window: 1` rules that out.
   *
   * Fails with `timeout` after two minutes unless `timeoutMs` says otherwise. While 1000 frames (`window`) are
   * unanswered, further calls wait: that is the back-pressure.
   */
  publish<T>(topic: string, payload: T, options: PublishOptions = {}): Promise<Published> {
    return this.#publisher.publish(topic, payload, options);
  }

  /**
   * Publishes many events in few frames of at most 1000 events and `maxFrameBytes` each. A frame is stored completely or
   * not at all. Returns the results in the order of the events. After an error some frames may be stored: give events
   * your own ids if you want to publish them again.
   *
   * Frames are smaller if a rate limit of the bus never admits as many events at once. `timeoutMs` applies to the whole
   * batch; without it, the timeout given to `connect` applies to each frame.
   */
  publishBatch<T>(
    topic: string,
    events: Iterable<EventToPublish<T>>,
    options: PublishCallOptions = {},
  ): Promise<Published[]> {
    return this.#publisher.publishBatch(topic, events, options);
  }

  /**
   * Consumes a topic as a member of `group`, at least once: an event is acknowledged when its handler returns, and
   * redelivered if it throws. Resolves when the bus has accepted the subscription. Leases are extended while handlers
   * run.
   */
  subscribe<T = unknown>(
    topic: string,
    group: string,
    handler: Handler<T>,
    options: SubscribeOptions = {},
  ): Promise<Subscription> {
    const operations = this.#operations(topic, group);
    return this.#consume(topic, options, operations, new AtLeastOnce(operations), handler as Handler);
  }

  /**
   * Consumes a topic and handles each event once: skips marked events, and marks and acknowledges an event after its
   * handler returns, in one commit if the bus keeps the marks. A handler that throws leaves no mark, and its event is
   * redelivered.
   *
   * A handler runs again only if the process ended, or stalled for longer than the lease, after the handler started and
   * before its mark was stored.
   */
  subscribeExactlyOnce<T = unknown>(
    topic: string,
    group: string,
    handler: Handler<T>,
    options: ExactlyOnceOptions = {},
  ): Promise<Subscription> {
    const { ttlMs = DEFAULT_MARK_TTL_MS, dedupe } = options;
    const operations = this.#operations(topic, group, ttlMs);
    const unconfirmed = new UnconfirmedMarks(UNCONFIRMED_MARKS);
    const semantics = dedupe
      ? new StoreDedupe(dedupe, ttlMs, operations, unconfirmed)
      : new BusDedupe(operations, unconfirmed);
    return this.#consume(topic, options, operations, semantics, handler as Handler);
  }

  /**
   * Consumes a topic and publishes the events that the handler returns: they, the mark and the acknowledgement are one
   * commit. Each event thus produces its results exactly once, whatever crashes.
   */
  transformExactlyOnce<T = unknown>(
    topic: string,
    group: string,
    handler: Transformer<T>,
    options: TransformOptions = {},
  ): Promise<Subscription> {
    const { ttlMs = DEFAULT_MARK_TTL_MS } = options;
    const operations = this.#operations(topic, group, ttlMs);
    const semantics = new TransformAndPublish(operations, ttlMs);
    const transform = handler as Transformer;
    return this.#consume<Iterable<OutgoingEvent> | undefined>(topic, options, operations, semantics, transform);
  }

  /** Returns `true` if the bus has a mark that `group` has handled the event. */
  seen(topic: string, group: string, id: string): Promise<boolean> {
    return this.#operations(topic, group).seen(id);
  }

  /** Stores a mark on the bus that `group` has handled the event, for `ttlMs` milliseconds (default: 7 days). */
  mark(topic: string, group: string, id: string, ttlMs: number = DEFAULT_MARK_TTL_MS): Promise<void> {
    return this.#operations(topic, group, ttlMs).mark(id);
  }

  /** Reads the stored events of a topic page by page, up to the end of the topic. */
  replay<T = unknown>(topic: string, options: ReplayOptions = {}): AsyncGenerator<BusEvent<T>, void, undefined> {
    return replay(this.#requireHttp(), this.#backoff, topic, options);
  }

  /**
   * Reads the stored events of a topic as one stream. If the connection is lost, continues after the last event, up to
   * the end that the topic has by then.
   */
  export<T = unknown>(topic: string, options: ExportOptions = {}): AsyncGenerator<BusEvent<T>, void, undefined> {
    return exportEvents(this.#requireHttp(), this.#backoff, topic, options);
  }

  /** Follows a topic as it grows, without a consumer group. Runs until the loop is left or the signal aborts. */
  stream<T = unknown>(topic: string, options: StreamOptions = {}): AsyncGenerator<BusEvent<T>, void, undefined> {
    return streamEvents(this.#requireHttp(), this.#backoff, topic, options);
  }

  /**
   * Closes the client: stops subscriptions after their running handlers, and waits for unanswered publishes. Whatever is
   * not done in time fails with `closed`.
   */
  close(options: CloseOptions = {}): Promise<void> {
    this.#closing ??= this.#close(options.timeoutMs ?? CLOSE_TIMEOUT_MS);
    return this.#closing;
  }

  /** Calls {@link Client.close}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal Resolves on the first connection; closes the client if there is none. */
  async firstConnected(signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.#listeners.connected(signal);
    } catch (error) {
      this.#connection.close();
      throw error;
    }
  }

  #operations(topic: string, group: string, ttlMs = DEFAULT_MARK_TTL_MS): GroupOperations {
    return new GroupOperations(this.#connection, topic, group, ttlMs, this.#maxFrameBytes);
  }

  async #consume<Result>(
    topic: string,
    options: SubscribeOptions,
    operations: GroupOperations,
    semantics: DeliverySemantics<Result>,
    handler: (event: BusEvent, delivery: Delivery) => Result | Promise<Result>,
  ): Promise<Subscription> {
    const { group } = operations;
    if (this.state === "closed" || this.#closing) {
      throw this.#connection.endedBy ?? new ClosedError("the client is closed");
    }
    if (this.#connection.hasBinding(topic, group)) {
      throw new RefusedError("already_subscribed", `this client is already subscribed to ${topic} in group ${group}`);
    }
    const settings = consumerSettings(options);
    const consumer = new Consumer(settings, operations, semantics, handler, now);
    const binding = new Binding(topic, group, settings.wire);
    const subscription = new Subscription(this.#connection, binding, consumer as Consumer<unknown>);
    this.#connection.bind(binding, consumer);
    const deadline = new Deadline(options, `subscribing to ${topic}`);
    try {
      await withSignal(consumer.firstBound, deadline.signal);
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
    const startedAt = now();
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.stop({ timeoutMs })));
    await this.#window.empty(Math.max(0, timeoutMs - (now() - startedAt)));
    this.#connection.close();
  }

  #requireHttp(): HttpApi {
    if (this.#http) return this.#http;
    throw new TypeError("the HTTP address is unknown: connect to http://HOST:PORT, or set httpUrl");
  }
}

/** Rejects when `signal` aborts before the promise settles. */
function withSignal<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
