import type { PrombusError } from "./errors.js";
import type { Binding } from "./session/binding.js";
import type { ConnectionState, Effect } from "./session/effect.js";
import type { EventFrame, OkFrame } from "./session/frames.js";
import type { Request, RequestOptions } from "./session/request.js";
import type { Session, TokenKind } from "./session/session.js";
import { WakeupTimer } from "./wakeup-timer.js";
import type { OpenSocket, Socket } from "./websocket/socket.js";

/** A token, or a function that returns one and is called before each connection. */
export type TokenSource = string | (() => string | Promise<string>);

/** Tells the session whether each connection gets a new token. */
export function tokenKind(token: TokenSource | undefined): TokenKind {
  if (token === undefined) return "none";
  return typeof token === "function" ? "renewed" : "fixed";
}

/** Receives the events of one subscription. */
export interface BindingListener {
  /** The server accepted the subscription. */
  bound(): void;
  /** The connection was lost, and with it all leases. */
  unbound(): void;
  /** The subscription ended. */
  refused(error: PrombusError): void;
  delivered(frame: EventFrame): void;
}

/** Called when the state of the connection changes, with the error that caused the change, if any. */
export type StateListener = (state: ConnectionState, error?: PrombusError) => void;

interface Caller {
  resolve(answer: OkFrame): void;
  reject(error: unknown): void;
}

/** Performs the effects of a {@link Session}: owns the socket, the timer and the waiting callers. Decides nothing. */
export class Connection {
  readonly #session: Session;
  readonly #url: string;
  readonly #openSocket: OpenSocket;
  readonly #now: () => number;
  readonly #onState: StateListener;
  readonly #callers = new Map<Request, Caller>();
  readonly #listeners = new Map<Binding, BindingListener>();
  readonly #timer: WakeupTimer;
  #token: TokenSource | undefined;
  #socket: Socket | undefined;
  #attempt = 0;
  #performing = false;

  constructor(
    session: Session,
    url: string,
    openSocket: OpenSocket,
    now: () => number,
    token: TokenSource | undefined,
    onState: StateListener,
  ) {
    this.#session = session;
    this.#url = url;
    this.#openSocket = openSocket;
    this.#now = now;
    this.#token = token;
    this.#onState = onState;
    this.#timer = new WakeupTimer(now, () => {
      session.tick(now());
      this.#performEffects();
    });
  }

  get state(): ConnectionState {
    return this.#session.state;
  }

  /** The error that ended the connection for good, unless its user closed it. */
  get endedBy(): PrombusError | undefined {
    return this.#session.endedBy;
  }

  /** Opens the first connection. */
  start(): void {
    this.#session.start(this.#now());
    this.#performEffects();
  }

  /** Sends a frame encoded with {@link encodeFrame} and waits for its answer. */
  ask(body: string, options: RequestOptions, signal?: AbortSignal): Promise<OkFrame> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return this.#answerTo(this.#session.submit(body, options, this.#now()), signal);
  }

  /** Presents another token, now and on every later connection. */
  async authenticate(token: TokenSource): Promise<void> {
    this.#token = token;
    const text = typeof token === "string" ? token : await token();
    await this.#answerTo(this.#session.authenticate(text, tokenKind(token), this.#now()));
  }

  /** Returns the current token; calls the token function if there is one. */
  async token(): Promise<string | undefined> {
    return typeof this.#token === "function" ? this.#token() : this.#token;
  }

  hasBinding(topic: string, group: string): boolean {
    return this.#session.hasBinding(topic, group);
  }

  /** Starts a subscription. */
  bind(binding: Binding, listener: BindingListener): void {
    this.#listeners.set(binding, listener);
    this.#session.bind(binding, this.#now());
    this.#performEffects();
  }

  async pause(binding: Binding): Promise<void> {
    await this.#answerTo(this.#session.pause(binding, this.#now()));
  }

  async resume(binding: Binding): Promise<void> {
    await this.#answerTo(this.#session.resume(binding, this.#now()));
  }

  /** Ends a subscription. */
  async unbind(binding: Binding): Promise<void> {
    this.#listeners.delete(binding);
    await this.#answerTo(this.#session.unbind(binding, this.#now()));
  }

  /** Closes for good. */
  close(): void {
    this.#session.close();
    this.#performEffects();
  }

  #answerTo(request: Request, signal?: AbortSignal): Promise<OkFrame>;
  #answerTo(request: Request | undefined): Promise<OkFrame | undefined>;
  #answerTo(request: Request | undefined, signal?: AbortSignal): Promise<OkFrame | undefined> {
    if (request === undefined) {
      this.#performEffects();
      return Promise.resolve(undefined);
    }
    return new Promise((resolve, reject) => {
      const abandon = () => {
        this.#callers.delete(request);
        this.#session.abandon(request);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", abandon, { once: true });
      const release = () => signal?.removeEventListener("abort", abandon);
      this.#callers.set(request, {
        resolve: (answer) => {
          release();
          resolve(answer);
        },
        reject: (error) => {
          release();
          reject(error);
        },
      });
      this.#performEffects();
    });
  }

  /** Performs the session's effects, including those that performing them causes, and sets the timer. */
  #performEffects(): void {
    if (this.#performing) return;
    this.#performing = true;
    try {
      for (let effects = this.#session.drain(); effects.length > 0; effects = this.#session.drain()) {
        for (const effect of effects) this.#perform(effect);
      }
    } finally {
      this.#performing = false;
    }
    this.#timer.set(this.#session.nextTickAt());
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "open":
        this.#open();
        break;
      case "send":
        this.#socket?.send(effect.text);
        break;
      case "hang-up":
        this.#attempt += 1;
        this.#socket?.close(effect.code, effect.reason);
        this.#socket = undefined;
        break;
      case "state":
        this.#onState(effect.state, effect.error);
        break;
      case "answered":
        this.#takeCaller(effect.request)?.resolve(effect.answer);
        break;
      case "failed":
        this.#takeCaller(effect.request)?.reject(effect.error);
        break;
      case "bound":
        this.#listeners.get(effect.binding)?.bound();
        break;
      case "unbound":
        this.#listeners.get(effect.binding)?.unbound();
        break;
      case "refused":
        this.#listeners.get(effect.binding)?.refused(effect.error);
        this.#listeners.delete(effect.binding);
        break;
      case "delivered":
        this.#listeners.get(effect.binding)?.delivered(effect.frame);
        break;
    }
  }

  #takeCaller(request: Request): Caller | undefined {
    const caller = this.#callers.get(request);
    this.#callers.delete(request);
    return caller;
  }

  #open(): void {
    this.#attempt += 1;
    const attempt = this.#attempt;
    const report = (event: () => void) => {
      // Late events of an earlier attempt are ignored.
      if (this.#attempt !== attempt) return;
      event();
      this.#performEffects();
    };
    const closed = (code: number, reason: string) =>
      report(() => {
        this.#socket = undefined;
        this.#session.closed(code, reason, this.#now());
      });
    const connect = (token: string | undefined) => {
      this.#socket = this.#openSocket(this.#url, {
        opened: () => report(() => this.#session.opened(token, this.#now())),
        received: (text) => report(() => this.#session.received(text, this.#now())),
        closed,
      });
    };
    this.token().then(
      (token) => report(() => connect(token)),
      (error) => closed(1006, `cannot get a token: ${error}`),
    );
  }
}
