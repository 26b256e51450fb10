import { beforeEach, describe, expect, test } from "vitest";
import { Backoff } from "../backoff.js";
import { ERROR_CODES } from "../errors.js";
import { Binding } from "./binding.js";
import type { Effect } from "./effect.js";
import { encodeFrame } from "./frames.js";
import type { Request } from "./request.js";
import { Session, type TokenKind } from "./session.js";

let session: Session;
let effects: Effect[];

beforeEach(() => {
  session = withToken("none");
  effects = [];
});

function withToken(kind: TokenKind): Session {
  return new Session(new Backoff({ minMs: 100, maxMs: 1000 }, () => 1), kind);
}

/** Takes the effects since the last call. */
function drain(): Effect[] {
  effects = session.drain();
  return effects;
}

const sent = (list = effects) =>
  list.flatMap((effect) => (effect.kind === "send" ? [JSON.parse(effect.text) as Record<string, unknown>] : []));
const kinds = (list = effects) => list.map(({ kind }) => kind);

function connected(token?: string): void {
  session.start(0);
  session.opened(token, 0);
  drain();
}

const publishing = { lane: "publish t", resend: true, retry: true };
const publish = (payload: unknown, now = 0, options = publishing): Request =>
  session.submit(encodeFrame({ op: "PUBLISH", topic: "t", payload }), options, now);
const ok = (request: Request, now = 0) => session.received(JSON.stringify({ op: "OK", corr: request.corr }), now);
const err = (corr: string, code: string, now = 0, retry_after_ms?: number) =>
  session.received(JSON.stringify({ op: "ERR", corr, code, msg: `it is ${code}`, retry_after_ms }), now);

describe("connecting", () => {
  test("is connected at once without a token", () => {
    session.start(0);
    expect(drain()).toEqual([{ kind: "state", state: "connecting" }, { kind: "open" }]);
    session.opened(undefined, 0);
    expect(drain()).toEqual([{ kind: "state", state: "connected" }]);
  });

  test("sends nothing before the server has accepted the token", () => {
    const early = publish(1);
    session.start(0);
    session.opened("secret", 0);
    expect(sent(drain())).toMatchObject([{ op: "AUTH", token: "secret" }]);
    expect(session.state).toBe("connecting");
    session.received(JSON.stringify({ op: "OK", corr: sent()[0]?.corr }), 0);
    expect(sent(drain())).toMatchObject([{ op: "PUBLISH", corr: early.corr }]);
    expect(session.state).toBe("connected");
  });

  test("ends if the token is refused", () => {
    const early = publish(1);
    session.start(0);
    session.opened("secret", 0);
    err(String(sent(drain())[0]?.corr), "bad_token");
    expect(drain()).toMatchObject([
      { kind: "hang-up" },
      { kind: "failed", request: early, error: { code: "bad_token" } },
      { kind: "state", state: "closed", error: { code: "bad_token" } },
    ]);
    expect(session.endedBy).toMatchObject({ code: "bad_token" });
  });

  test("backs off further with every lost connection, and starts over after an answer", () => {
    connected();
    const delays: (number | undefined)[] = [];
    for (let round = 0; round < 5; round += 1) {
      session.closed(1006, "", 0);
      delays.push(session.nextTickAt());
      session.tick(session.nextTickAt() as number);
      session.opened(undefined, 0);
    }
    expect(delays).toEqual([100, 200, 400, 800, 1000]);
    ok(publish(1));
    session.closed(1006, "", 0);
    expect(session.nextTickAt()).toBe(100);
  });

  test("does not reconnect before the back-off is over", () => {
    connected();
    session.closed(1001, "", 0);
    drain();
    session.tick(99);
    expect(drain()).toEqual([]);
    session.tick(100);
    expect(kinds(drain())).toEqual(["state", "open"]);
  });

  test.each([1001, 1005, 1006, 1009, 4008, 4009])("reconnects after close code %i", (code) => {
    connected();
    session.closed(code, "", 0);
    expect(session.state).toBe("disconnected");
  });

  test.each([1000, 1002, 1003, 1007, 1008, 1011, 3000, 4000, 4999])("ends after close code %i", (code) => {
    connected();
    const request = publish(1);
    session.closed(code, "because", 0);
    drain();
    expect(session.state).toBe("closed");
    expect(effects).toContainEqual(expect.objectContaining({ kind: "failed", request }));
    expect(session.endedBy).toMatchObject({ code: "ended", closeCode: code });
  });

  test("ends after 4401 if it has no token", () => {
    connected();
    session.closed(4401, "not authenticated in time", 0);
    expect(session.endedBy).toMatchObject({ code: "unauthorized" });
  });

  test("reconnects after 4401 if it has a token", () => {
    session = withToken("fixed");
    session.start(0);
    session.opened("secret", 0);
    session.closed(4401, "not authenticated in time", 0);
    expect(session.state).toBe("disconnected");
  });
});

test("gives up a connection that does not open in time", () => {
  session.start(0);
  drain();
  expect(session.nextTickAt()).toBe(20_000);
  session.tick(20_000);
  expect(kinds(drain())).toEqual(["hang-up", "state"]);
  expect(session.state).toBe("disconnected");
});

describe("an expired token", () => {
  test("is renewed on a new connection, and no request is lost", () => {
    session = withToken("renewed");
    connected();
    const [request, later] = [publish(1), publish(2)];
    drain();
    err(request.corr, "unauthorized");
    expect(kinds(drain())).toEqual(["hang-up", "state"]);
    session.tick(100);
    session.opened("another", 100);
    drain();
    session.received(JSON.stringify({ op: "OK" }), 100);
    expect(sent(drain()).map(({ corr }) => corr)).toEqual([request.corr, later.corr]);
  });

  test("is an error if it cannot be renewed", () => {
    session = withToken("fixed");
    connected();
    const request = publish(1);
    drain();
    err(request.corr, "unauthorized");
    expect(drain()).toMatchObject([{ kind: "failed", request, error: { code: "unauthorized" } }]);
  });
});

describe("requests", () => {
  test("answers arrive in the order of the requests", () => {
    connected();
    const [first, second] = [publish(1), publish(2)];
    expect(sent(drain())).toMatchObject([{ payload: 1 }, { payload: 2 }]);
    ok(first);
    err(second.corr, "forbidden");
    expect(drain()).toMatchObject([
      { kind: "answered", request: first },
      { kind: "failed", request: second, error: { code: "forbidden" } },
    ]);
  });

  test("an error without corr belongs to the oldest frame", () => {
    connected();
    const [first] = [publish(1), publish(2)];
    drain();
    session.received(JSON.stringify({ op: "ERR", code: "payload_too_large", msg: "too large" }), 0);
    expect(drain()).toMatchObject([{ kind: "failed", request: first }]);
  });

  test("an answer that belongs to no request ends the session", () => {
    connected();
    publish(1);
    session.received(JSON.stringify({ op: "OK", corr: "another" }), 0);
    expect(kinds(drain())).toContain("hang-up");
    expect(session.endedBy).toMatchObject({ code: "bad_answer" });
    expect(effects.filter(({ kind }) => kind === "failed")).toHaveLength(1);
  });

  test("resends unanswered requests unchanged and in order, before new ones", () => {
    connected();
    const requests = [1, 2, 3].map((n) => publish(n));
    const before = sent(drain());
    ok(requests[0] as Request);
    session.closed(1006, "", 0);
    publish(4);
    session.tick(100);
    session.opened(undefined, 100);
    const after = sent(drain());
    expect(after.slice(0, 2)).toEqual(before.slice(1));
    expect(after.map(({ payload }) => payload)).toEqual([2, 3, 4]);
  });

  test("fails requests that must not be resent when the connection is lost, and while there is none", () => {
    connected();
    const request = publish(1, 0, { ...publishing, resend: false });
    session.closed(1006, "", 0);
    expect(drain()).toContainEqual(
      expect.objectContaining({ kind: "failed", request, error: expect.objectContaining({ code: "disconnected" }) }),
    );
    const late = publish(2, 0, { ...publishing, resend: false });
    expect(drain()).toMatchObject([{ kind: "failed", request: late, error: { code: "disconnected" } }]);
  });

  test.each(ERROR_CODES)("reports or retries %s", (code) => {
    connected();
    const request = publish(1);
    drain();
    err(request.corr, code, 0, code === "rate_limited" ? 50 : undefined);
    drain();
    const isTemporary = ["rate_limited", "storage_unavailable", "shutting_down"].includes(code);
    if (isTemporary) {
      expect(effects).toEqual([]);
      session.tick(session.nextTickAt() as number);
      expect(sent(drain())).toMatchObject([{ payload: 1, corr: request.corr }]);
    } else {
      expect(effects).toMatchObject([{ kind: "failed", request, error: { code, isRetryable: false } }]);
    }
  });

  test("reports a temporary refusal, with its delay, to a caller that does not want retries", () => {
    connected();
    const request = publish(1, 0, { ...publishing, retry: false });
    drain();
    err(request.corr, "rate_limited", 0, 70);
    expect(drain()).toMatchObject([{ kind: "failed", error: { retryAfterMs: 70, isRetryable: true } }]);
  });

  test("reports a rate limit without a delay, because waiting does not help", () => {
    connected();
    const request = publish(1);
    err(request.corr, "rate_limited");
    drain();
    expect(effects).toContainEqual(expect.objectContaining({ kind: "failed", request }));
  });

  test("after a temporary refusal a lane restarts with one frame, and does not block others", () => {
    connected();
    const [a, b, c] = [publish("a"), publish("b"), publish("c")] as [Request, Request, Request];
    drain();
    err(a.corr, "rate_limited", 0, 40);
    err(b.corr, "rate_limited", 0, 60);
    err(c.corr, "rate_limited", 0, 50);
    expect(drain()).toEqual([]);
    publish("other", 10, { ...publishing, lane: "publish other" });
    expect(sent(drain())).toMatchObject([{ payload: "other" }]);
    session.tick(59);
    expect(drain()).toEqual([]);
    session.tick(60);
    expect(sent(drain())).toMatchObject([{ payload: "a" }]);
    session.received(JSON.stringify({ op: "OK" }), 60);
    ok(a, 60);
    expect(sent(drain())).toMatchObject([{ payload: "b" }, { payload: "c" }]);
  });

  test("never sends an abandoned request, and ignores its answer if it was sent", () => {
    const early = publish(1);
    session.abandon(early);
    connected();
    expect(sent()).toEqual([]);
    const late = publish(2);
    const later = publish(3);
    drain();
    session.abandon(late);
    ok(late);
    ok(later);
    expect(drain()).toMatchObject([{ kind: "answered", request: later }]);
  });

  test("gives up a server that does not answer", () => {
    connected();
    publish(1, 1000);
    drain();
    expect(session.nextTickAt()).toBe(31_000);
    session.tick(31_000);
    expect(kinds(drain())).toEqual(["hang-up", "state"]);
    expect(session.state).toBe("disconnected");
  });
});

describe("subscriptions", () => {
  const binding = () => new Binding("t", "g", { from: "earliest" });
  const event = { seq: 1, id: "a", ts: 0, topic: "t", payload: 1 };
  const delivery = { op: "EVENT", topic: "t", group: "g", event, ctx: { attempt: 1, ack_deadline_ms: 5 } };
  const acceptLast = () => session.received(JSON.stringify({ op: "OK", corr: sent().at(-1)?.corr }), 0);

  function bound(): Binding {
    const subscription = binding();
    connected();
    session.bind(subscription, 0);
    drain();
    acceptLast();
    drain();
    return subscription;
  }

  test("deliver events after the OK to SUBSCRIBE", () => {
    const subscription = bound();
    expect(effects).toEqual([{ kind: "bound", binding: subscription }]);
    session.received(JSON.stringify(delivery), 0);
    expect(drain()).toMatchObject([{ kind: "delivered", binding: subscription, frame: delivery }]);
  });

  test("nack an event that cannot be read, and go on", () => {
    const subscription = bound();
    // It nests too deep for the JSON readers of some engines; here it is just not JSON.
    const readable = JSON.stringify({ ...delivery, event: { ...event, id: 'a"1' } });
    const unreadable = readable.replace('"payload":1', '"payload":[[');
    session.received(unreadable, 0);
    expect(sent(drain())).toMatchObject([{ op: "NACK", topic: "t", group: "g", id: 'a"1' }]);
    expect(sent()[0]?.reason).toContain("the client cannot read the event: ");
    acceptLast();
    session.received(JSON.stringify(delivery), 0);
    expect(drain()).toMatchObject([{ kind: "delivered", binding: subscription, frame: delivery }]);
    expect(session.state).toBe("connected");
    for (const nonsense of ["", '{"op":"EVENT","topic":"t"', unreadable.replaceAll('"g"', '"other"')]) {
      session.received(nonsense, 0);
      expect(drain()).toEqual([]);
    }
  });

  test("end when the server says so, and do not begin again", () => {
    const subscription = bound();
    const ended = (group: string, reason: string) =>
      session.received(JSON.stringify({ op: "ENDED", topic: "t", group, reason }), 0);
    ended("other", "topic_deleted");
    expect(drain()).toEqual([]);
    ended("g", "topic_deleted");
    expect(drain()).toMatchObject([
      { kind: "refused", binding: subscription, error: { code: "subscription_ended", reason: "topic_deleted" } },
    ]);
    expect(session.hasBinding("t", "g")).toBe(false);
    session.received(JSON.stringify(delivery), 0);
    ended("g", "topic_deleted");
    expect(drain()).toEqual([]);
    expect(session.unbind(subscription, 0)).toBeUndefined();
  });

  test("deliver events of any depth", () => {
    bound();
    const depth = 5000;
    const nested = `${"[".repeat(depth)}${"]".repeat(depth)}`;
    session.received(JSON.stringify(delivery).replace('"payload":1', `"payload":${nested}`), 0);
    expect(kinds(drain())).toEqual(["delivered"]);
  });

  test("are renewed on each connection, after the unanswered requests", () => {
    const subscription = bound();
    publish(1);
    session.closed(1006, "", 0);
    expect(drain()).toContainEqual({ kind: "unbound", binding: subscription });
    session.tick(100);
    session.opened(undefined, 100);
    expect(sent(drain())).toMatchObject([{ op: "PUBLISH" }, { op: "SUBSCRIBE", topic: "t", group: "g" }]);
  });

  test("are renewed on resume if they were paused", () => {
    const subscription = bound();
    session.pause(subscription, 0);
    expect(sent(drain())).toMatchObject([{ op: "PAUSE" }]);
    session.closed(1006, "", 0);
    session.tick(100);
    session.opened(undefined, 100);
    expect(sent(drain())).toEqual([]);
    session.resume(subscription, 100);
    expect(sent(drain())).toMatchObject([{ op: "SUBSCRIBE" }]);
  });

  test("are paused once bound if they were paused before", () => {
    const subscription = binding();
    session.bind(subscription, 0);
    session.pause(subscription, 0);
    connected();
    expect(sent()).toMatchObject([{ op: "SUBSCRIBE" }]);
    acceptLast();
    expect(sent(drain())).toMatchObject([{ op: "PAUSE" }]);
  });

  test("are retried after a temporary refusal, and end after any other", () => {
    const subscription = binding();
    connected();
    session.bind(subscription, 0);
    err(String(sent(drain())[0]?.corr), "storage_unavailable");
    expect(drain()).toEqual([]);
    session.tick(session.nextTickAt() as number);
    err(String(sent(drain())[0]?.corr), "forbidden");
    expect(drain()).toMatchObject([{ kind: "refused", binding: subscription, error: { code: "forbidden" } }]);
    expect(session.hasBinding("t", "g")).toBe(false);
  });

  test("probe a silent server, and give it up if it does not answer", () => {
    bound();
    expect(session.nextTickAt()).toBe(30_000);
    session.tick(30_000);
    expect(sent(drain())).toMatchObject([{ op: "RESUME", topic: "t", group: "g" }]);
    session.tick(60_000);
    expect(kinds(drain())).toContain("hang-up");
  });

  test("deliver nothing after unbinding", () => {
    const subscription = bound();
    session.unbind(subscription, 0);
    expect(sent(drain())).toMatchObject([{ op: "UNSUBSCRIBE" }]);
    session.received(JSON.stringify(delivery), 0);
    expect(drain()).toEqual([]);
  });
});

test("closing fails unanswered and later requests", () => {
  connected();
  const unanswered = publish(1);
  drain();
  session.close();
  expect(drain()).toMatchObject([
    { kind: "hang-up", code: 1000 },
    { kind: "failed", request: unanswered, error: { code: "closed" } },
    { kind: "state", state: "closed" },
  ]);
  const late = publish(2);
  expect(drain()).toMatchObject([{ kind: "failed", request: late, error: { code: "closed" } }]);
  expect(session.nextTickAt()).toBeUndefined();
});

test("ignores texts that are not frames, and frames of unknown types", () => {
  connected();
  for (const text of ["", "[]", "null", "{", '{"op":"NEWS"}', '{"no":"op"}']) session.received(text, 0);
  expect(drain()).toEqual([]);
  expect(session.state).toBe("connected");
});
