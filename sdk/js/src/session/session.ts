import type { Backoff } from "../backoff.js";
import { BadAnswerError, ClosedError, DisconnectedError, type PrombusError, RefusedError } from "../errors.js";
import { type Binding, bindingKey } from "./binding.js";
import { finalClose } from "./close-codes.js";
import type { ConnectionState, Effect } from "./effect.js";
import { type ClientFrame, encodeFrame, type OkFrame, readServerFrame, withCorr } from "./frames.js";
import { Lane } from "./lane.js";
import { Request, type RequestOptions } from "./request.js";

/** After so long without a word a subscriber asks whether the server is still there. */
const SILENCE_MS = 30_000;
/** How long any answer may take before the connection counts as lost. */
const ANSWER_MS = 30_000;
/** How long opening a connection may take. */
const OPENING_MS = 20_000;

/** Which token there is: none, always the same, or one that is asked for anew with each connection. */
export type TokenKind = "none" | "fixed" | "renewed";

/** Something that was sent and has to be answered: a request, or what the session says for itself. */
interface Owed {
  readonly corr: string;
  readonly request?: Request;
  readonly done?: (outcome: OkFrame | RefusedError, now: number) => void;
}

/**
 * What is owed to whom, through any number of connections. It has no sockets, no clock and no timers: it is told what
 * happened and when, and {@link drain} says what is to be done. Answers come in the order of the frames, so what is
 * unanswered is a queue.
 */
export class Session {
  readonly #backoff: Backoff;
  readonly #lanes = new Map<string, Lane>();
  readonly #bindings = new Map<string, Binding>();
  #effects: Effect[] = [];
  #owed: Owed[] = [];
  #phase: "idle" | "opening" | "authenticating" | "connected" | "resting" | "ended" = "idle";
  #token: TokenKind;
  #numbers = 0;
  #failures = 0;
  #opensAt = 0;
  #openedAt = 0;
  #heardAt = 0;
  #owedSince = 0;
  #endedBy: PrombusError | undefined;

  constructor(backoff: Backoff, token: TokenKind) {
    this.#backoff = backoff;
    this.#token = token;
  }

  /** Takes what is to be done, in this order. */
  drain(): Effect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }

  /** How the connection is. */
  get state(): ConnectionState {
    if (this.#phase === "connected") return "connected";
    if (this.#phase === "ended") return "closed";
    return this.#phase === "resting" ? "disconnected" : "connecting";
  }

  /** Why it ended, if it ended by itself. */
  get endedBy(): PrombusError | undefined {
    return this.#endedBy;
  }

  /** When {@link tick} is to be called next, if at all. */
  wakesAt(): number | undefined {
    if (this.#phase === "resting") return this.#opensAt;
    if (this.#phase === "opening") return this.#openedAt + OPENING_MS;
    if (this.#phase !== "connected" && this.#phase !== "authenticating") return undefined;
    let at = Number.POSITIVE_INFINITY;
    if (this.#owed.length > 0) at = Math.max(this.#owedSince, this.#heardAt) + ANSWER_MS;
    else if (this.#anyBound()) at = this.#heardAt + SILENCE_MS;
    if (this.#phase === "connected") {
      for (const lane of this.#lanes.values()) at = Math.min(at, lane.opensAt ?? at);
      for (const binding of this.#bindings.values()) at = Math.min(at, binding.asksAgainAt ?? at);
    }
    return Number.isFinite(at) ? at : undefined;
  }

  /** Begins: opens the first connection. */
  start(now: number): void {
    if (this.#phase === "idle") this.#open(now);
  }

  /** Time has passed. */
  tick(now: number): void {
    if (this.#phase === "resting" && now >= this.#opensAt) this.#open(now);
    if (this.#phase === "opening" && now >= this.#openedAt + OPENING_MS) this.#lose("no connection in time", now);
    if (this.#phase !== "connected" && this.#phase !== "authenticating") return;
    if (this.#owed.length > 0 && now >= Math.max(this.#owedSince, this.#heardAt) + ANSWER_MS) {
      this.#lose("no answer in time", now);
      return;
    }
    if (this.#phase !== "connected") return;
    for (const lane of this.#lanes.values()) this.#fly(lane, now);
    for (const binding of this.#bindings.values()) {
      if (binding.asksAgainAt !== undefined && now >= binding.asksAgainAt) this.#ask(binding, now);
    }
    if (this.#owed.length === 0 && now >= this.#heardAt + SILENCE_MS) this.#probe(now);
  }

  /** A connection is there. With a token it is used when that is accepted. */
  opened(token: string | undefined, now: number): void {
    if (this.#phase !== "opening") return;
    this.#heardAt = now;
    if (token === undefined) {
      this.#ready(now);
      return;
    }
    this.#phase = "authenticating";
    this.#say({ op: "AUTH", token }, now, (outcome, then) => {
      if (!(outcome instanceof RefusedError)) this.#ready(then);
      else if (outcome.isRetryable) this.#lose(outcome.message, then);
      else {
        this.#giveUp("the token was refused");
        this.#end(outcome);
      }
    });
  }

  /** A text came. */
  received(text: string, now: number): void {
    if (this.#phase !== "connected" && this.#phase !== "authenticating") return;
    this.#heardAt = now;
    const frame = readServerFrame(text);
    if (frame === undefined) return;
    if (frame.op === "EVENT") {
      const binding = this.#bindings.get(bindingKey(frame.topic, frame.group));
      this.#failures = 0;
      if (binding?.state === "bound") this.#effects.push({ kind: "delivered", binding, frame });
      return;
    }
    const owed = this.#owed.shift();
    this.#owedSince = now;
    if (owed === undefined || (frame.corr !== undefined && frame.corr !== owed.corr)) {
      this.#giveUp("an answer came that nobody asked for");
      this.#end(new BadAnswerError("an answer came that nobody asked for"), owed);
      return;
    }
    const outcome = frame.op === "OK" ? frame : new RefusedError(frame.code, frame.msg, frame.retry_after_ms);
    if (frame.op === "ERR" && frame.code === "unauthorized" && this.#token === "renewed") {
      // The token has expired. A new connection comes with a new one, and with all that has no answer.
      this.#owed.unshift(owed);
      this.#lose("the token has expired", now);
      return;
    }
    owed.done?.(outcome, now);
    if (owed.request) this.#answer(owed.request, outcome, now);
  }

  /** The connection is gone, or could not be had. */
  closed(code: number, reason: string, now: number): void {
    if (this.#phase === "ended" || this.#phase === "resting" || this.#phase === "idle") return;
    const final = finalClose(code, reason, this.#token !== "none");
    if (final !== undefined) {
      this.#end(final);
      return;
    }
    this.#phase = "resting";
    this.#failures += 1;
    this.#opensAt = now + this.#backoff.delayMs(this.#failures);
    const lost = new DisconnectedError(`the connection was lost (${reason || code})`);
    this.#unbindAll();
    for (const lane of this.#lanes.values()) {
      for (const request of lane.grounded()) this.#effects.push({ kind: "failed", request, error: lost });
    }
    for (const { request } of this.#owed.splice(0)) {
      if (request === undefined || request.abandoned) continue;
      if (request.survives) this.#lane(request.lane).put(request);
      else this.#effects.push({ kind: "failed", request, error: lost });
    }
    for (const [name, lane] of this.#lanes) if (lane.isIdle(now)) this.#lanes.delete(name);
    this.#effects.push({ kind: "state", state: "disconnected", because: lost });
  }

  /** Makes a request, which is the next in its lane. */
  submit(body: string, options: RequestOptions, now: number): Request {
    this.#numbers += 1;
    const request = new Request(this.#numbers, body, options);
    if (this.#phase === "ended") {
      this.#effects.push({ kind: "failed", request, error: this.#endedBy ?? new ClosedError("the client is closed") });
    } else if (!request.survives && this.#phase !== "connected") {
      this.#effects.push({ kind: "failed", request, error: new DisconnectedError("not connected") });
    } else {
      const lane = this.#lane(request.lane);
      lane.put(request);
      if (this.#phase === "connected") this.#fly(lane, now);
    }
    return request;
  }

  /** Nobody waits for this request any more. If it was sent it may be done nonetheless. */
  abandon(request: Request): void {
    request.abandoned = true;
    const lane = this.#lanes.get(request.lane);
    lane?.remove(request);
    if (lane?.isEmpty) this.#lanes.delete(request.lane);
  }

  /** Shows another token on the connection that is there; the next connections are opened with it by the caller. */
  authenticate(token: string, kind: TokenKind, now: number): Request {
    this.#token = kind;
    return this.submit(encodeFrame({ op: "AUTH", token }), { lane: "AUTH", survives: false, retries: true }, now);
  }

  /** Whether a subscription of that name is kept. */
  isBound(topic: string, group: string): boolean {
    return this.#bindings.has(bindingKey(topic, group));
  }

  /** Keeps a subscription, on this connection and all that follow. */
  bind(binding: Binding, now: number): void {
    this.#bindings.set(binding.key, binding);
    if (this.#phase === "connected") this.#ask(binding, now);
  }

  /** Lets deliveries of a subscription rest, on all connections that follow, too. */
  pause(binding: Binding, now: number): Request | undefined {
    binding.paused = true;
    return binding.state === "bound" ? this.#control("PAUSE", binding, now) : undefined;
  }

  /** Lets deliveries go on. */
  resume(binding: Binding, now: number): Request | undefined {
    binding.paused = false;
    if (binding.state === "bound") return this.#control("RESUME", binding, now);
    if (binding.state === "absent" && this.#phase === "connected") this.#ask(binding, now);
    return undefined;
  }

  /** Ends a subscription. */
  unbind(binding: Binding, now: number): Request | undefined {
    if (!this.#bindings.delete(binding.key)) return undefined;
    const known = binding.state !== "absent" && this.#phase === "connected";
    binding.state = "absent";
    return known ? this.#control("UNSUBSCRIBE", binding, now) : undefined;
  }

  /** Ends everything. What is owed is failed. */
  close(): void {
    if (this.#phase === "ended") return;
    if (this.#phase !== "resting" && this.#phase !== "idle") this.#giveUp("the client closes", 1000);
    this.#end(undefined);
  }

  #open(now: number): void {
    this.#phase = "opening";
    this.#openedAt = now;
    this.#effects.push({ kind: "state", state: "connecting" }, { kind: "open" });
  }

  #ready(now: number): void {
    this.#phase = "connected";
    this.#effects.push({ kind: "state", state: "connected" });
    // What was owed before goes first: marks of handlers that finished have to be there before their events come again.
    for (const lane of this.#lanes.values()) this.#fly(lane, now);
    for (const binding of this.#bindings.values()) {
      // A paused one is asked for when it goes on, so that nothing comes in between; its group exists.
      if (!(binding.paused && binding.wasBound)) this.#ask(binding, now);
    }
  }

  #lane(name: string): Lane {
    let lane = this.#lanes.get(name);
    if (lane === undefined) {
      lane = new Lane();
      this.#lanes.set(name, lane);
    }
    return lane;
  }

  #fly(lane: Lane, now: number): void {
    for (let request = lane.take(now); request !== undefined; request = lane.take(now)) {
      this.#send({ corr: request.corr, request }, request.text, now);
    }
  }

  #send(owed: Owed, text: string, now: number): void {
    if (this.#owed.length === 0) this.#owedSince = now;
    this.#owed.push(owed);
    this.#effects.push({ kind: "send", text });
  }

  #say(frame: ClientFrame, now: number, done: Owed["done"]): void {
    this.#numbers += 1;
    const corr = String(this.#numbers);
    this.#send(done ? { corr, done } : { corr }, withCorr(encodeFrame(frame), corr), now);
  }

  #answer(request: Request, outcome: OkFrame | RefusedError, now: number): void {
    const lane = this.#lane(request.lane);
    const refused = outcome instanceof RefusedError;
    if (refused && outcome.isRetryable && request.retries) {
      const wait = outcome.retryAfterMs ?? this.#backoff.delayMs(lane.refusals + 1);
      lane.refused(request, now + wait);
    } else {
      lane.answered();
      if (!refused) this.#failures = 0;
      if (!request.abandoned) {
        this.#effects.push(
          refused ? { kind: "failed", request, error: outcome } : { kind: "answered", request, answer: outcome },
        );
      }
    }
    this.#fly(lane, now);
    if (lane.isIdle(now)) this.#lanes.delete(request.lane);
  }

  #control(op: string, { topic, group }: Binding, now: number): Request {
    const lane = `control ${bindingKey(topic, group)}`;
    return this.submit(encodeFrame({ op, topic, group }), { lane, survives: false, retries: true }, now);
  }

  #ask(binding: Binding, now: number): void {
    const { topic, group, options: opts } = binding;
    binding.state = "asked";
    binding.asksAgainAt = undefined;
    this.#say({ op: "SUBSCRIBE", topic, group, opts }, now, (outcome, then) => {
      if (this.#bindings.get(binding.key) !== binding) return;
      if (!(outcome instanceof RefusedError)) {
        binding.state = "bound";
        binding.wasBound = true;
        binding.refusals = 0;
        if (binding.paused) this.#control("PAUSE", binding, then);
        this.#effects.push({ kind: "bound", binding });
      } else if (outcome.isRetryable) {
        binding.state = "absent";
        binding.refusals += 1;
        binding.asksAgainAt = then + (outcome.retryAfterMs ?? this.#backoff.delayMs(binding.refusals));
      } else {
        binding.state = "absent";
        this.#bindings.delete(binding.key);
        this.#effects.push({ kind: "refused", binding, error: outcome });
      }
    });
  }

  #anyBound(): boolean {
    for (const binding of this.#bindings.values()) if (binding.state === "bound") return true;
    return false;
  }

  /** Asks for something that changes nothing, for the sake of its answer. */
  #probe(now: number): void {
    for (const { state, paused, topic, group } of this.#bindings.values()) {
      if (state !== "bound") continue;
      this.#say({ op: paused ? "PAUSE" : "RESUME", topic, group }, now, undefined);
      return;
    }
  }

  /** Leaves this connection for the next one. */
  #lose(reason: string, now: number): void {
    this.#giveUp(reason);
    this.closed(1006, reason, now);
  }

  #giveUp(reason: string, code = 4000): void {
    // A close frame has room for 123 bytes.
    this.#effects.push({ kind: "hang-up", code, reason: reason.slice(0, 40) });
  }

  #unbindAll(): void {
    for (const binding of this.#bindings.values()) {
      if (binding.state === "bound") this.#effects.push({ kind: "unbound", binding });
      binding.state = "absent";
      binding.asksAgainAt = undefined;
    }
  }

  #end(because: PrombusError | undefined, taken?: Owed): void {
    this.#phase = "ended";
    this.#endedBy = because;
    const error = because ?? new ClosedError("the client is closed");
    this.#unbindAll();
    const owed = taken ? [taken, ...this.#owed.splice(0)] : this.#owed.splice(0);
    const requests = owed.flatMap(({ request }) => (request && !request.abandoned ? [request] : []));
    for (const lane of this.#lanes.values()) requests.push(...lane.clear());
    this.#lanes.clear();
    for (const request of requests) this.#effects.push({ kind: "failed", request, error });
    for (const binding of this.#bindings.values()) this.#effects.push({ kind: "refused", binding, error });
    this.#bindings.clear();
    this.#effects.push(because ? { kind: "state", state: "closed", because } : { kind: "state", state: "closed" });
  }
}
