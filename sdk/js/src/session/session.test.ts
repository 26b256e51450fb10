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

/** What happened since the last look. */
function look(): Effect[] {
  effects = session.drain();
  return effects;
}

const sent = (list = effects) =>
  list.flatMap((effect) => (effect.kind === "send" ? [JSON.parse(effect.text) as Record<string, unknown>] : []));
const kinds = (list = effects) => list.map(({ kind }) => kind);

function connected(token?: string): void {
  session.start(0);
  session.opened(token, 0);
  look();
}

const publishing = { lane: "publish t", survives: true, retries: true };
const publish = (payload: unknown, now = 0, options = publishing): Request =>
  session.submit(encodeFrame({ op: "PUBLISH", topic: "t", payload }), options, now);
const ok = (request: Request, now = 0) => session.received(JSON.stringify({ op: "OK", corr: request.corr }), now);
const err = (corr: string, code: string, now = 0, retry_after_ms?: number) =>
  session.received(JSON.stringify({ op: "ERR", corr, code, msg: `it is ${code}`, retry_after_ms }), now);

describe("connecting", () => {
  test("without a token it is used at once", () => {
    session.start(0);
    expect(look()).toEqual([{ kind: "state", state: "connecting" }, { kind: "open" }]);
    session.opened(undefined, 0);
    expect(look()).toEqual([{ kind: "state", state: "connected" }]);
  });

  test("with a token nothing is sent before that is accepted", () => {
    const early = publish(1);
    session.start(0);
    session.opened("secret", 0);
    expect(sent(look())).toMatchObject([{ op: "AUTH", token: "secret" }]);
    expect(session.state).toBe("connecting");
    session.received(JSON.stringify({ op: "OK", corr: sent()[0]?.corr }), 0);
    expect(sent(look())).toMatchObject([{ op: "PUBLISH", corr: early.corr }]);
    expect(session.state).toBe("connected");
  });

  test("a token that is refused ends it", () => {
    const early = publish(1);
    session.start(0);
    session.opened("secret", 0);
    err(String(sent(look())[0]?.corr), "bad_token");
    expect(look()).toMatchObject([
      { kind: "hang-up" },
      { kind: "failed", request: early, error: { code: "bad_token" } },
      { kind: "state", state: "closed", because: { code: "bad_token" } },
    ]);
    expect(session.endedBy).toMatchObject({ code: "bad_token" });
  });

  test("attempts are made with longer and longer rests, and with short ones again after a success", () => {
    connected();
    const wakes: (number | undefined)[] = [];
    for (let round = 0; round < 5; round += 1) {
      session.closed(1006, "", 0);
      wakes.push(session.wakesAt());
      session.tick(session.wakesAt() as number);
      session.opened(undefined, 0);
    }
    expect(wakes).toEqual([100, 200, 400, 800, 1000]);
    ok(publish(1));
    session.closed(1006, "", 0);
    expect(session.wakesAt()).toBe(100);
  });

  test("it does not connect before its time", () => {
    connected();
    session.closed(1001, "", 0);
    look();
    session.tick(99);
    expect(look()).toEqual([]);
    session.tick(100);
    expect(kinds(look())).toEqual(["state", "open"]);
  });

  test.each([1001, 1005, 1006, 1009, 4008, 4009])("after %i it connects again", (code) => {
    connected();
    session.closed(code, "", 0);
    expect(session.state).toBe("disconnected");
  });

  test.each([1000, 1002, 1003, 1007, 1008, 1011, 3000, 4000, 4999])("%i ends it", (code) => {
    connected();
    const request = publish(1);
    session.closed(code, "because", 0);
    look();
    expect(session.state).toBe("closed");
    expect(effects).toContainEqual(expect.objectContaining({ kind: "failed", request }));
    expect(session.endedBy).toMatchObject({ code: "ended", closeCode: code });
  });

  test("4401 ends it where there is no token to show", () => {
    connected();
    session.closed(4401, "not authenticated in time", 0);
    expect(session.endedBy).toMatchObject({ code: "unauthorized" });
  });

  test("4401 does not where there is one", () => {
    session = withToken("fixed");
    session.start(0);
    session.opened("secret", 0);
    session.closed(4401, "not authenticated in time", 0);
    expect(session.state).toBe("disconnected");
  });
});

test("a connection that does not open in time is given up", () => {
  session.start(0);
  look();
  expect(session.wakesAt()).toBe(20_000);
  session.tick(20_000);
  expect(kinds(look())).toEqual(["hang-up", "state"]);
  expect(session.state).toBe("disconnected");
});

describe("a token that expires", () => {
  test("is renewed with a new connection where that is possible, and nothing is lost", () => {
    session = withToken("renewed");
    connected();
    const [request, behind] = [publish(1), publish(2)];
    look();
    err(request.corr, "unauthorized");
    expect(kinds(look())).toEqual(["hang-up", "state"]);
    session.tick(100);
    session.opened("another", 100);
    look();
    session.received(JSON.stringify({ op: "OK" }), 100);
    expect(sent(look()).map(({ corr }) => corr)).toEqual([request.corr, behind.corr]);
  });

  test("is an error otherwise", () => {
    session = withToken("fixed");
    connected();
    const request = publish(1);
    look();
    err(request.corr, "unauthorized");
    expect(look()).toMatchObject([{ kind: "failed", request, error: { code: "unauthorized" } }]);
  });
});

describe("requests", () => {
  test("answers belong to requests in their order", () => {
    connected();
    const [first, second] = [publish(1), publish(2)];
    expect(sent(look())).toMatchObject([{ payload: 1 }, { payload: 2 }]);
    ok(first);
    err(second.corr, "forbidden");
    expect(look()).toMatchObject([
      { kind: "answered", request: first },
      { kind: "failed", request: second, error: { code: "forbidden" } },
    ]);
  });

  test("an error without corr is that of the oldest frame", () => {
    connected();
    const [first] = [publish(1), publish(2)];
    look();
    session.received(JSON.stringify({ op: "ERR", code: "payload_too_large", msg: "too large" }), 0);
    expect(look()).toMatchObject([{ kind: "failed", request: first }]);
  });

  test("an answer that nobody asked for ends it", () => {
    connected();
    publish(1);
    session.received(JSON.stringify({ op: "OK", corr: "another" }), 0);
    expect(kinds(look())).toContain("hang-up");
    expect(session.endedBy).toMatchObject({ code: "bad_answer" });
    expect(effects.filter(({ kind }) => kind === "failed")).toHaveLength(1);
  });

  test("what survives is sent again, unchanged and in its order, before what is new", () => {
    connected();
    const requests = [1, 2, 3].map((n) => publish(n));
    const before = sent(look());
    ok(requests[0] as Request);
    session.closed(1006, "", 0);
    publish(4);
    session.tick(100);
    session.opened(undefined, 100);
    const after = sent(look());
    expect(after.slice(0, 2)).toEqual(before.slice(1));
    expect(after.map(({ payload }) => payload)).toEqual([2, 3, 4]);
  });

  test("what does not survive fails with the connection, and at once without one", () => {
    connected();
    const request = publish(1, 0, { ...publishing, survives: false });
    session.closed(1006, "", 0);
    expect(look()).toContainEqual(
      expect.objectContaining({ kind: "failed", request, error: expect.objectContaining({ code: "disconnected" }) }),
    );
    const late = publish(2, 0, { ...publishing, survives: false });
    expect(look()).toMatchObject([{ kind: "failed", request: late, error: { code: "disconnected" } }]);
  });

  test.each(ERROR_CODES)("%s is told, or tried again", (code) => {
    connected();
    const request = publish(1);
    look();
    err(request.corr, code, 0, code === "rate_limited" ? 50 : undefined);
    look();
    const passes = ["rate_limited", "storage_unavailable", "shutting_down"].includes(code);
    if (passes) {
      expect(effects).toEqual([]);
      session.tick(session.wakesAt() as number);
      expect(sent(look())).toMatchObject([{ payload: 1, corr: request.corr }]);
    } else {
      expect(effects).toMatchObject([{ kind: "failed", request, error: { code, isRetryable: false } }]);
    }
  });

  test("who does not want another attempt is told, with the time to wait", () => {
    connected();
    const request = publish(1, 0, { ...publishing, retries: false });
    look();
    err(request.corr, "rate_limited", 0, 70);
    expect(look()).toMatchObject([{ kind: "failed", error: { retryAfterMs: 70, isRetryable: true } }]);
  });

  test("a limit that no time helps against is told", () => {
    connected();
    const request = publish(1);
    err(request.corr, "rate_limited");
    look();
    expect(effects).toContainEqual(expect.objectContaining({ kind: "failed", request }));
  });

  test("after a refusal that passes a lane begins with one frame, and others are not held up", () => {
    connected();
    const [a, b, c] = [publish("a"), publish("b"), publish("c")] as [Request, Request, Request];
    look();
    err(a.corr, "rate_limited", 0, 40);
    err(b.corr, "rate_limited", 0, 60);
    err(c.corr, "rate_limited", 0, 50);
    expect(look()).toEqual([]);
    publish("other", 10, { ...publishing, lane: "publish other" });
    expect(sent(look())).toMatchObject([{ payload: "other" }]);
    session.tick(59);
    expect(look()).toEqual([]);
    session.tick(60);
    expect(sent(look())).toMatchObject([{ payload: "a" }]);
    session.received(JSON.stringify({ op: "OK" }), 60);
    ok(a, 60);
    expect(sent(look())).toMatchObject([{ payload: "b" }, { payload: "c" }]);
  });

  test("what is abandoned before it is sent never is; afterwards its answer is passed over", () => {
    const early = publish(1);
    session.abandon(early);
    connected();
    expect(sent()).toEqual([]);
    const late = publish(2);
    const behind = publish(3);
    look();
    session.abandon(late);
    ok(late);
    ok(behind);
    expect(look()).toMatchObject([{ kind: "answered", request: behind }]);
  });

  test("a server that does not answer is given up", () => {
    connected();
    publish(1, 1000);
    look();
    expect(session.wakesAt()).toBe(31_000);
    session.tick(31_000);
    expect(kinds(look())).toEqual(["hang-up", "state"]);
    expect(session.state).toBe("disconnected");
  });
});

describe("subscriptions", () => {
  const binding = () => new Binding("t", "g", { from: "earliest" });
  const event = { seq: 1, id: "a", ts: 0, topic: "t", payload: 1 };
  const delivery = { op: "EVENT", topic: "t", group: "g", event, ctx: { attempt: 1, ack_deadline_ms: 5 } };
  const okOfLast = () => session.received(JSON.stringify({ op: "OK", corr: sent().at(-1)?.corr }), 0);

  function bound(): Binding {
    const made = binding();
    connected();
    session.bind(made, 0);
    look();
    okOfLast();
    look();
    return made;
  }

  test("events come behind the OK of SUBSCRIBE", () => {
    const made = bound();
    expect(effects).toEqual([{ kind: "bound", binding: made }]);
    session.received(JSON.stringify(delivery), 0);
    expect(look()).toMatchObject([{ kind: "delivered", binding: made, frame: delivery }]);
  });

  test("they are asked for again on each connection, behind what was owed before", () => {
    const made = bound();
    publish(1);
    session.closed(1006, "", 0);
    expect(look()).toContainEqual({ kind: "unbound", binding: made });
    session.tick(100);
    session.opened(undefined, 100);
    expect(sent(look())).toMatchObject([{ op: "PUBLISH" }, { op: "SUBSCRIBE", topic: "t", group: "g" }]);
  });

  test("one that rests is asked for when it goes on", () => {
    const made = bound();
    session.pause(made, 0);
    expect(sent(look())).toMatchObject([{ op: "PAUSE" }]);
    session.closed(1006, "", 0);
    session.tick(100);
    session.opened(undefined, 100);
    expect(sent(look())).toEqual([]);
    session.resume(made, 100);
    expect(sent(look())).toMatchObject([{ op: "SUBSCRIBE" }]);
  });

  test("one that was paused before it was there is paused when it is", () => {
    const made = binding();
    session.bind(made, 0);
    session.pause(made, 0);
    connected();
    expect(sent()).toMatchObject([{ op: "SUBSCRIBE" }]);
    okOfLast();
    expect(sent(look())).toMatchObject([{ op: "PAUSE" }]);
  });

  test("a refusal that passes is tried again, any other ends it", () => {
    const made = binding();
    connected();
    session.bind(made, 0);
    err(String(sent(look())[0]?.corr), "storage_unavailable");
    expect(look()).toEqual([]);
    session.tick(session.wakesAt() as number);
    err(String(sent(look())[0]?.corr), "forbidden");
    expect(look()).toMatchObject([{ kind: "refused", binding: made, error: { code: "forbidden" } }]);
    expect(session.isBound("t", "g")).toBe(false);
  });

  test("a silent server is asked for a word, and given up if there is none", () => {
    bound();
    expect(session.wakesAt()).toBe(30_000);
    session.tick(30_000);
    expect(sent(look())).toMatchObject([{ op: "RESUME", topic: "t", group: "g" }]);
    session.tick(60_000);
    expect(kinds(look())).toContain("hang-up");
  });

  test("ended, nothing of it comes any more", () => {
    const made = bound();
    session.unbind(made, 0);
    expect(sent(look())).toMatchObject([{ op: "UNSUBSCRIBE" }]);
    session.received(JSON.stringify(delivery), 0);
    expect(look()).toEqual([]);
  });
});

test("closing fails what is owed, and what comes afterwards", () => {
  connected();
  const owed = publish(1);
  look();
  session.close();
  expect(look()).toMatchObject([
    { kind: "hang-up", code: 1000 },
    { kind: "failed", request: owed, error: { code: "closed" } },
    { kind: "state", state: "closed" },
  ]);
  const late = publish(2);
  expect(look()).toMatchObject([{ kind: "failed", request: late, error: { code: "closed" } }]);
  expect(session.wakesAt()).toBeUndefined();
});

test("texts that are no frames, and frames of kinds to come, are passed over", () => {
  connected();
  for (const text of ["", "[]", "null", "{", '{"op":"NEWS"}', '{"no":"op"}']) session.received(text, 0);
  expect(look()).toEqual([]);
  expect(session.state).toBe("connected");
});
