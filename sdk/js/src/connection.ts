import type { PrombusError } from "./errors.js";
import type { Binding } from "./session/binding.js";
import type { ConnectionState } from "./session/effect.js";
import type { EventFrame, OkFrame } from "./session/frames.js";
import type { Request, RequestOptions } from "./session/request.js";
import type { Session, TokenKind } from "./session/session.js";
import type { OpenSocket, Socket } from "./websocket/socket.js";

/** A token, or what gives one: asked before each connection is opened. */
export type TokenSource = string | (() => string | Promise<string>);

/** What a session has to know about a token. */
export function tokenKind(token: TokenSource | undefined): TokenKind {
  if (token === undefined) return "none";
  return typeof token === "function" ? "renewed" : "fixed";
}

/** What a subscription is told. */
export interface BindingListener {
  /** The server has it. */
  bound(): void;
  /** The connection that had it is gone, and its leases with it. */
  unbound(): void;
  /** It is over. */
  refused(error: PrombusError): void;
  /** An event came. */
  delivered(frame: EventFrame): void;
}

/** Who is told how the connection is. */
export type StateListener = (state: ConnectionState, because?: PrombusError) => void;

/** The longest that a timer of all platforms can wait. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

interface Waiting {
  resolve(answer: OkFrame): void;
  reject(error: unknown): void;
}

/** Gives a {@link Session} sockets, time and callers. It decides nothing. */
export class Connection {
  readonly #session: Session;
  readonly #url: string;
  readonly #openSocket: OpenSocket;
  readonly #now: () => number;
  readonly #tellState: StateListener;
  readonly #waiting = new Map<Request, Waiting>();
  readonly #listeners = new Map<Binding, BindingListener>();
  #token: TokenSource | undefined;
  #socket: Socket | undefined;
  #attempt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #working = false;

  constructor(
    session: Session,
    url: string,
    openSocket: OpenSocket,
    now: () => number,
    token: TokenSource | undefined,
    tellState: StateListener,
  ) {
    this.#session = session;
    this.#url = url;
    this.#openSocket = openSocket;
    this.#now = now;
    this.#token = token;
    this.#tellState = tellState;
  }

  /** How it is now. */
  get state(): ConnectionState {
    return this.#session.state;
  }

  /** Why it ended by itself, if it did. */
  get endedBy(): PrombusError | undefined {
    return this.#session.endedBy;
  }

  /** Opens the first connection. */
  start(): void {
    this.#session.start(this.#now());
    this.#work();
  }

  /** Sends a frame, as {@link encodeFrame} makes it, and gives its answer. */
  ask(body: string, options: RequestOptions, signal?: AbortSignal): Promise<OkFrame> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return this.#awaiting(this.#session.submit(body, options, this.#now()), signal);
  }

  /** Shows another token, now and on every connection that follows. */
  async authenticate(token: TokenSource): Promise<void> {
    this.#token = token;
    const text = typeof token === "string" ? token : await token();
    await this.#awaiting(this.#session.authenticate(text, tokenKind(token), this.#now()));
  }

  /** The token as it is now. */
  async token(): Promise<string | undefined> {
    return typeof this.#token === "function" ? this.#token() : this.#token;
  }

  /** Whether there is a subscription of that name. */
  isBound(topic: string, group: string): boolean {
    return this.#session.isBound(topic, group);
  }

  /** Begins a subscription. */
  bind(binding: Binding, listener: BindingListener): void {
    this.#listeners.set(binding, listener);
    this.#session.bind(binding, this.#now());
    this.#work();
  }

  /** Lets deliveries rest. */
  async pause(binding: Binding): Promise<void> {
    await this.#awaiting(this.#session.pause(binding, this.#now()));
  }

  /** Lets deliveries go on. */
  async resume(binding: Binding): Promise<void> {
    await this.#awaiting(this.#session.resume(binding, this.#now()));
  }

  /** Ends a subscription. */
  async unbind(binding: Binding): Promise<void> {
    this.#listeners.delete(binding);
    await this.#awaiting(this.#session.unbind(binding, this.#now()));
  }

  /** Ends everything. */
  close(): void {
    this.#session.close();
    this.#work();
  }

  #awaiting(request: Request, signal?: AbortSignal): Promise<OkFrame>;
  #awaiting(request: Request | undefined): Promise<OkFrame | undefined>;
  #awaiting(request: Request | undefined, signal?: AbortSignal): Promise<OkFrame | undefined> {
    if (request === undefined) {
      this.#work();
      return Promise.resolve(undefined);
    }
    return new Promise((resolve, reject) => {
      const abandon = () => {
        this.#waiting.delete(request);
        this.#session.abandon(request);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", abandon, { once: true });
      const release = () => signal?.removeEventListener("abort", abandon);
      this.#waiting.set(request, {
        resolve: (answer) => {
          release();
          resolve(answer);
        },
        reject: (error) => {
          release();
          reject(error);
        },
      });
      this.#work();
    });
  }

  /** Does what the session wants, also what it wants because of that, and then sets the clock. */
  #work(): void {
    if (this.#working) return;
    this.#working = true;
    try {
      for (let effects = this.#session.drain(); effects.length > 0; effects = this.#session.drain()) {
        for (const effect of effects) this.#do(effect);
      }
    } finally {
      this.#working = false;
    }
    this.#setTimer();
  }

  #do(effect: ReturnType<Session["drain"]>[number]): void {
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
        this.#tellState(effect.state, effect.because);
        break;
      case "answered":
        this.#taken(effect.request)?.resolve(effect.answer);
        break;
      case "failed":
        this.#taken(effect.request)?.reject(effect.error);
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

  #taken(request: Request): Waiting | undefined {
    const waiting = this.#waiting.get(request);
    this.#waiting.delete(request);
    return waiting;
  }

  #open(): void {
    this.#attempt += 1;
    const attempt = this.#attempt;
    // Nothing counts that an older attempt still says.
    const happened = (tell: () => void) => {
      if (this.#attempt !== attempt) return;
      tell();
      this.#work();
    };
    const lost = (code: number, reason: string) =>
      happened(() => {
        this.#socket = undefined;
        this.#session.closed(code, reason, this.#now());
      });
    const connect = (token: string | undefined) => {
      this.#socket = this.#openSocket(this.#url, {
        opened: () => happened(() => this.#session.opened(token, this.#now())),
        received: (text) => happened(() => this.#session.received(text, this.#now())),
        closed: lost,
      });
    };
    this.token().then(
      (token) => happened(() => connect(token)),
      (error) => lost(1006, `no token: ${error}`),
    );
  }

  #setTimer(): void {
    const at = this.#session.wakesAt() ?? Number.POSITIVE_INFINITY;
    // A timer that is too early is cheaper than one that is set anew with every frame.
    if (at >= this.#timerAt && at !== Number.POSITIVE_INFINITY) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    if (at === Number.POSITIVE_INFINITY) return;
    const wait = Math.min(Math.max(0, Math.ceil(at - this.#now())), LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#session.tick(this.#now());
      this.#work();
    }, wait);
  }
}
