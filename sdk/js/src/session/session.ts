import type { Backoff } from "../backoff.js";
import {
  BadAnswerError,
  ClosedError,
  DisconnectedError,
  type PrombusError,
  RefusedError,
  SubscriptionEndedError,
} from "../errors.js";
import { type Binding, bindingKey } from "./binding.js";
import { finalClose } from "./close-codes.js";
import type { ConnectionState, Effect } from "./effect.js";
import {
  type ClientFrame,
  type EndedFrame,
  type ErrFrame,
  type EventFrame,
  encodeFrame,
  type OkFrame,
  parseServerFrame,
  type UnreadableEvent,
  withCorr,
} from "./frames.js";
import { Lane } from "./lane.js";
import { type PendingAnswer, PendingAnswers } from "./pending-answers.js";
import { Request, type RequestOptions } from "./request.js";

/** How long opening a connection may take. */
const OPEN_TIMEOUT_MS = 20_000;
/** A close frame has room for 123 bytes of reason: at least 40 characters. */
const MAX_REASON_CHARACTERS = 40;

/** Whether there is a token, and whether each connection gets a new one. */
export type TokenKind = "none" | "fixed" | "renewed";

type Phase =
  | { kind: "idle" }
  | { kind: "opening"; timeoutAt: number }
  | { kind: "authenticating" }
  | { kind: "connected" }
  | { kind: "backing-off"; until: number }
  | { kind: "ended"; error: PrombusError | undefined };

/**
 * The protocol of one client across all its connections: requests, subscriptions and reconnects. It is a pure state
 * machine without sockets, clock or timers. Its methods report what happened and when; {@link drain} returns what to do.
 */
export class Session {
  readonly #backoff: Backoff;
  readonly #lanes = new Map<string, Lane>();
  readonly #bindings = new Map<string, Binding>();
  readonly #pending = new PendingAnswers();
  #effects: Effect[] = [];
  #phase: Phase = { kind: "idle" };
  #token: TokenKind;
  #lastNumber = 0;
  /** Connections lost in a row without an answer or event in between. */
  #failures = 0;

  constructor(backoff: Backoff, token: TokenKind) {
    this.#backoff = backoff;
    this.#token = token;
  }

  /** Takes the effects to perform, in order. */
  drain(): Effect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }

  get state(): ConnectionState {
    switch (this.#phase.kind) {
      case "connected":
        return "connected";
      case "ended":
        return "closed";
      case "backing-off":
        return "disconnected";
      default:
        return "connecting";
    }
  }

  /** The error that ended the session; `undefined` if it is active or was closed by its user. */
  get endedBy(): PrombusError | undefined {
    return this.#phase.kind === "ended" ? this.#phase.error : undefined;
  }

  /** When {@link tick} is to be called next, if at all. */
  nextTickAt(): number | undefined {
    if (this.#phase.kind === "backing-off") return this.#phase.until;
    if (this.#phase.kind === "opening") return this.#phase.timeoutAt;
    if (!this.#isOpen) return undefined;
    let at = Number.POSITIVE_INFINITY;
    if (!this.#pending.isEmpty) at = this.#pending.timeoutAt;
    else if (this.#anyBound()) at = this.#pending.probeAt;
    if (this.#isConnected) {
      for (const lane of this.#lanes.values()) at = Math.min(at, lane.sendsAt ?? at);
      for (const binding of this.#bindings.values()) at = Math.min(at, binding.retryAt ?? at);
    }
    return Number.isFinite(at) ? at : undefined;
  }

  /** Opens the first connection. */
  start(now: number): void {
    if (this.#phase.kind === "idle") this.#open(now);
  }

  /** Performs what is due at `now`: reconnects, timeouts, retries and probes. */
  tick(now: number): void {
    if (this.#phase.kind === "backing-off" && now >= this.#phase.until) this.#open(now);
    if (this.#phase.kind === "opening" && now >= this.#phase.timeoutAt) this.#reconnect("connecting timed out", now);
    if (!this.#isOpen) return;
    if (!this.#pending.isEmpty && now >= this.#pending.timeoutAt) {
      this.#reconnect("the server does not answer", now);
      return;
    }
    if (!this.#isConnected) return;
    for (const lane of this.#lanes.values()) this.#sendQueued(lane, now);
    for (const binding of this.#bindings.values()) {
      if (binding.retryAt !== undefined && now >= binding.retryAt) this.#subscribe(binding, now);
    }
    if (this.#pending.isEmpty && now >= this.#pending.probeAt) this.#probe(now);
  }

  /** The socket opened. With a token, the session is connected once the server has accepted it. */
  opened(token: string | undefined, now: number): void {
    if (this.#phase.kind !== "opening") return;
    this.#pending.received(now);
    if (token === undefined) {
      this.#connected(now);
      return;
    }
    this.#phase = { kind: "authenticating" };
    this.#sendFrame({ op: "AUTH", token }, now, (outcome, answeredAt) => {
      if (!(outcome instanceof RefusedError)) this.#connected(answeredAt);
      else if (outcome.isRetryable) this.#reconnect(outcome.message, answeredAt);
      else {
        this.#hangUp("the token was refused");
        this.#end(outcome);
      }
    });
  }

  /** The server sent a text. */
  received(text: string, now: number): void {
    if (!this.#isOpen) return;
    this.#pending.received(now);
    const frame = parseServerFrame(text);
    if (frame === undefined) return;
    if (frame.op === "EVENT") this.#delivered(frame);
    else if (frame.op === "ENDED") this.#subscriptionEnded(frame);
    else if (frame.op === "UNREADABLE") this.#giveBack(frame, now);
    else this.#answered(frame, now);
  }

  /** The socket closed, or could not be opened. */
  closed(code: number, reason: string, now: number): void {
    const { kind } = this.#phase;
    if (kind === "ended" || kind === "backing-off" || kind === "idle") return;
    const final = finalClose(code, reason, this.#token !== "none");
    if (final !== undefined) {
      this.#end(final);
      return;
    }
    this.#failures += 1;
    this.#phase = { kind: "backing-off", until: now + this.#backoff.delayMs(this.#failures) };
    const error = new DisconnectedError(`the connection was lost (${reason || code})`);
    this.#unbindAll();
    for (const lane of this.#lanes.values()) {
      for (const request of lane.disconnected()) this.#effects.push({ kind: "failed", request, error });
    }
    for (const request of this.#pending.takeRequests()) {
      if (request.resend) this.#lane(request.lane).enqueue(request);
      else this.#effects.push({ kind: "failed", request, error });
    }
    for (const [name, lane] of this.#lanes) if (lane.isIdle(now)) this.#lanes.delete(name);
    this.#effects.push({ kind: "state", state: "disconnected", error });
  }

  /** Queues a request at the end of its lane. */
  submit(body: string, options: RequestOptions, now: number): Request {
    this.#lastNumber += 1;
    const request = new Request(this.#lastNumber, body, options);
    if (this.#phase.kind === "ended") {
      this.#effects.push({ kind: "failed", request, error: this.#phase.error ?? clientClosed() });
    } else if (!request.resend && !this.#isConnected) {
      this.#effects.push({ kind: "failed", request, error: new DisconnectedError("not connected") });
    } else {
      const lane = this.#lane(request.lane);
      lane.enqueue(request);
      if (this.#isConnected) this.#sendQueued(lane, now);
    }
    return request;
  }

  /** Drops a request whose caller no longer waits. The server may still perform it if it was sent. */
  abandon(request: Request): void {
    request.abandoned = true;
    const lane = this.#lanes.get(request.lane);
    lane?.remove(request);
    if (lane?.isEmpty) this.#lanes.delete(request.lane);
  }

  /** Presents another token on the present connection. The caller opens later connections with it. */
  authenticate(token: string, kind: TokenKind, now: number): Request {
    this.#token = kind;
    return this.submit(encodeFrame({ op: "AUTH", token }), { lane: "AUTH", resend: false, retry: true }, now);
  }

  hasBinding(topic: string, group: string): boolean {
    return this.#bindings.has(bindingKey(topic, group));
  }

  /** Subscribes, on this connection and on all later ones. */
  bind(binding: Binding, now: number): void {
    this.#bindings.set(binding.key, binding);
    if (this.#isConnected) this.#subscribe(binding, now);
  }

  /** Pauses deliveries, on this connection and on all later ones. */
  pause(binding: Binding, now: number): Request | undefined {
    binding.paused = true;
    return binding.state === "bound" ? this.#control("PAUSE", binding, now) : undefined;
  }

  resume(binding: Binding, now: number): Request | undefined {
    binding.paused = false;
    if (binding.state === "bound") return this.#control("RESUME", binding, now);
    if (binding.state === "unbound" && this.#isConnected) this.#subscribe(binding, now);
    return undefined;
  }

  /** Ends a subscription. */
  unbind(binding: Binding, now: number): Request | undefined {
    if (!this.#bindings.delete(binding.key)) return undefined;
    const isKnown = binding.state !== "unbound" && this.#isConnected;
    binding.state = "unbound";
    return isKnown ? this.#control("UNSUBSCRIBE", binding, now) : undefined;
  }

  /** Ends the session. Fails all unanswered requests. */
  close(): void {
    const { kind } = this.#phase;
    if (kind === "ended") return;
    if (kind !== "backing-off" && kind !== "idle") this.#hangUp("the client was closed", 1000);
    this.#end(undefined);
  }

  get #isConnected(): boolean {
    return this.#phase.kind === "connected";
  }

  get #isOpen(): boolean {
    return this.#phase.kind === "connected" || this.#phase.kind === "authenticating";
  }

  #open(now: number): void {
    this.#phase = { kind: "opening", timeoutAt: now + OPEN_TIMEOUT_MS };
    this.#effects.push({ kind: "state", state: "connecting" }, { kind: "open" });
  }

  #connected(now: number): void {
    this.#phase = { kind: "connected" };
    this.#effects.push({ kind: "state", state: "connected" });
    // Requests go first: marks of finished handlers have to be stored before their events are delivered again.
    for (const lane of this.#lanes.values()) this.#sendQueued(lane, now);
    for (const binding of this.#bindings.values()) {
      // A paused subscription is renewed on resume, so that nothing is delivered before. Its group exists already.
      if (!(binding.paused && binding.wasBound)) this.#subscribe(binding, now);
    }
  }

  #delivered(frame: EventFrame): void {
    const binding = this.#bindings.get(bindingKey(frame.topic, frame.group));
    this.#failures = 0;
    if (binding?.state === "bound") this.#effects.push({ kind: "delivered", binding, frame });
  }

  /** The server has ended a subscription, which would not begin again over another connection. */
  #subscriptionEnded({ topic, group, reason }: EndedFrame): void {
    const key = bindingKey(topic, group);
    const binding = this.#bindings.get(key);
    if (binding === undefined) return;
    this.#bindings.delete(key);
    binding.state = "unbound";
    this.#effects.push({ kind: "refused", binding, error: new SubscriptionEndedError(topic, group, reason) });
  }

  /** Returns an event that cannot be read, so that only this one becomes a dead letter. */
  #giveBack({ topic, group, id, reason }: UnreadableEvent, now: number): void {
    this.#failures = 0;
    const isBound = this.#bindings.get(bindingKey(topic, group))?.state === "bound";
    if (isBound) this.#sendFrame({ op: "NACK", topic, group, id, reason: reason.slice(0, 1000) }, now, undefined);
  }

  #answered(frame: OkFrame | ErrFrame, now: number): void {
    const pending = this.#pending.shift(now);
    if (pending === undefined || (frame.corr !== undefined && frame.corr !== pending.corr)) {
      if (pending !== undefined) this.#pending.unshift(pending);
      this.#hangUp("unexpected answer");
      this.#end(new BadAnswerError("the server sent an answer that belongs to no request"));
      return;
    }
    if (frame.op === "ERR" && frame.code === "unauthorized" && this.#token === "renewed") {
      // The token has expired. The next connection presents a new one and sends all unanswered requests again.
      this.#pending.unshift(pending);
      this.#reconnect("the token has expired", now);
      return;
    }
    const outcome = frame.op === "OK" ? frame : new RefusedError(frame.code, frame.msg, frame.retry_after_ms);
    pending.done?.(outcome, now);
    if (pending.request) this.#settle(pending.request, outcome, now);
  }

  #settle(request: Request, outcome: OkFrame | RefusedError, now: number): void {
    const lane = this.#lane(request.lane);
    const refused = outcome instanceof RefusedError;
    if (refused && outcome.isRetryable && request.retry) {
      const delayMs = outcome.retryAfterMs ?? this.#backoff.delayMs(lane.refusals + 1);
      lane.refused(request, now + delayMs);
    } else {
      lane.answered();
      if (!refused) this.#failures = 0;
      if (!request.abandoned) {
        this.#effects.push(
          refused ? { kind: "failed", request, error: outcome } : { kind: "answered", request, answer: outcome },
        );
      }
    }
    this.#sendQueued(lane, now);
    if (lane.isIdle(now)) this.#lanes.delete(request.lane);
  }

  #lane(name: string): Lane {
    let lane = this.#lanes.get(name);
    if (lane === undefined) {
      lane = new Lane();
      this.#lanes.set(name, lane);
    }
    return lane;
  }

  #sendQueued(lane: Lane, now: number): void {
    for (let request = lane.dequeue(now); request !== undefined; request = lane.dequeue(now)) {
      this.#send({ corr: request.corr, request }, request.text, now);
    }
  }

  #send(pending: PendingAnswer, text: string, now: number): void {
    this.#pending.push(pending, now);
    this.#effects.push({ kind: "send", text });
  }

  /** Sends a frame of the session itself. */
  #sendFrame(frame: ClientFrame, now: number, done: PendingAnswer["done"]): void {
    this.#lastNumber += 1;
    const corr = String(this.#lastNumber);
    this.#send(done ? { corr, done } : { corr }, withCorr(encodeFrame(frame), corr), now);
  }

  #control(op: string, { topic, group }: Binding, now: number): Request {
    const lane = `control ${bindingKey(topic, group)}`;
    return this.submit(encodeFrame({ op, topic, group }), { lane, resend: false, retry: true }, now);
  }

  #subscribe(binding: Binding, now: number): void {
    const { topic, group, options: opts } = binding;
    binding.state = "requested";
    binding.retryAt = undefined;
    this.#sendFrame({ op: "SUBSCRIBE", topic, group, opts }, now, (outcome, answeredAt) => {
      if (this.#bindings.get(binding.key) !== binding) return;
      if (!(outcome instanceof RefusedError)) {
        binding.state = "bound";
        binding.wasBound = true;
        binding.refusals = 0;
        if (binding.paused) this.#control("PAUSE", binding, answeredAt);
        this.#effects.push({ kind: "bound", binding });
      } else if (outcome.isRetryable) {
        binding.state = "unbound";
        binding.refusals += 1;
        binding.retryAt = answeredAt + (outcome.retryAfterMs ?? this.#backoff.delayMs(binding.refusals));
      } else {
        binding.state = "unbound";
        this.#bindings.delete(binding.key);
        this.#effects.push({ kind: "refused", binding, error: outcome });
      }
    });
  }

  #anyBound(): boolean {
    for (const binding of this.#bindings.values()) if (binding.state === "bound") return true;
    return false;
  }

  /** Sends a frame that changes nothing, to see whether the server answers. */
  #probe(now: number): void {
    for (const { state, paused, topic, group } of this.#bindings.values()) {
      if (state !== "bound") continue;
      this.#sendFrame({ op: paused ? "PAUSE" : "RESUME", topic, group }, now, undefined);
      return;
    }
  }

  /** Drops this connection and schedules the next one. */
  #reconnect(reason: string, now: number): void {
    this.#hangUp(reason);
    this.closed(1006, reason, now);
  }

  #hangUp(reason: string, code = 4000): void {
    this.#effects.push({ kind: "hang-up", code, reason: reason.slice(0, MAX_REASON_CHARACTERS) });
  }

  #unbindAll(): void {
    for (const binding of this.#bindings.values()) {
      if (binding.state === "bound") this.#effects.push({ kind: "unbound", binding });
      binding.state = "unbound";
      binding.retryAt = undefined;
    }
  }

  #end(endedBy: PrombusError | undefined): void {
    this.#phase = { kind: "ended", error: endedBy };
    const error = endedBy ?? clientClosed();
    this.#unbindAll();
    const requests = this.#pending.takeRequests();
    for (const lane of this.#lanes.values()) requests.push(...lane.clear());
    this.#lanes.clear();
    for (const request of requests) this.#effects.push({ kind: "failed", request, error });
    for (const binding of this.#bindings.values()) this.#effects.push({ kind: "refused", binding, error });
    this.#bindings.clear();
    this.#effects.push({ kind: "state", state: "closed", ...(endedBy && { error: endedBy }) });
  }
}

function clientClosed(): ClosedError {
  return new ClosedError("the client is closed");
}
