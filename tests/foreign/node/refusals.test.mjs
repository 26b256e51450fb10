import assert from "node:assert/strict";
import { test } from "node:test";
import { fresh, withBus } from "./bus.mjs";
import { Server } from "./server.mjs";

test("each refusal has its code and leaves the connection open", withBus(async (bus) => {
  const topic = fresh("refusals");
  const group = "g";
  const corr = "mark";
  for (const [frame, code] of [
    ['{"op":', "bad_json"],
    ["", "bad_json"],
    ["[1]", "bad_frame"],
    [{ topic }, "bad_frame"],
    [{ op: "PUBLISH", topic }, "bad_frame"],
    [{ op: "PUBLISH", payload: 1, topic: 7 }, "bad_frame"],
    [{ op: "SUBSCRIBE", topic, group, opts: { maxInFlight: 0 } }, "bad_frame"],
    [{ op: "SUBSCRIBE", topic, group, opts: { from: "ts" } }, "bad_frame"],
    [{ op: "publish", topic, payload: 1 }, "unknown_op"],
    [{ op: "PUBLISH", topic: "no spaces", payload: 1 }, "bad_topic"],
    [{ op: "PUBLISH", topic: "x".repeat(201), payload: 1 }, "bad_topic"],
    [{ op: "SUBSCRIBE", topic, group: "" }, "bad_group"],
    [{ op: "ACK", topic, group, id: "x" }, "not_subscribed"],
    [{ op: "NACK", topic, group, id: "x" }, "not_subscribed"],
    [{ op: "MODACK", topic, group, id: "x", extend_ms: 1000 }, "not_subscribed"],
    [{ op: "RESUME", topic, group }, "not_subscribed"],
    [{ op: "SUBSCRIBE", topic, group, opts: { from: "afterId", afterId: "nobody" } }, "unknown_id"],
  ]) {
    const sent = typeof frame === "string" ? frame : { ...frame, corr };
    const answer = await bus.refused(sent, code);
    if (typeof frame !== "string") assert.equal(answer.corr, corr);
  }
  await bus.subscribe(topic, group);
  await bus.refused({ op: "SUBSCRIBE", topic, group }, "already_subscribed");
  await bus.refused({ op: "PUBLISH", topic, payload: 1, corr: "x".repeat(129) }, "bad_frame");
  const ignored = { op: "PUBLISH", topic, payload: 1, unheard: { of: [] }, corr };
  assert.deepEqual([(await bus.ok(ignored)).corr], [corr]);
}));

test("a rate limit says when to retry, and the retry succeeds", async () => {
  const server = await Server.start(
    "limits.connection.capacity=5", "limits.connection.refill_per_sec=1",
    'topics={"narrow" = {limit = {capacity = 2, refill_per_sec = 1}}}',
  );
  try {
    await withBus(async (_, connect) => {
      const bus = await connect(server.url);
      // Sent at once, so that the bucket does not refill in between.
      for (const n of [1, 2, 3, 4, 5, 6]) {
        bus.send({ op: "PUBLISH", topic: "wide", payload: n, corr: `${n}` });
      }
      for (const n of [1, 2, 3, 4, 5]) assert.equal((await bus.answers.next("an OK")).seq, n);
      let refusal = await bus.answers.next("a refusal");
      assert.deepEqual([refusal.op, refusal.code, refusal.corr], ["ERR", "rate_limited", "6"]);
      assert.equal(refusal.msg, "conn publish rate exceeded");
      assert.ok(refusal.retry_after_ms >= 1 && refusal.retry_after_ms <= 1000);
      await new Promise((resolve) => setTimeout(resolve, refusal.retry_after_ms + 2));
      assert.equal((await bus.publish("wide", 6)).seq, 6);
      const other = await connect(server.url);
      for (const n of [1, 2, 3]) other.send({ op: "PUBLISH", topic: "narrow", payload: n });
      for (const n of [1, 2]) assert.equal((await other.answers.next("an OK")).seq, n);
      refusal = await other.answers.next("a refusal");
      assert.deepEqual([refusal.code, refusal.msg], ["rate_limited", "topic publish rate exceeded"]);
      const many = Array.from({ length: 6 }, () => ({ payload: 0 }));
      refusal = await other.refused({ op: "PUBLISH", topic: "wide", events: many }, "rate_limited");
      assert.equal("retry_after_ms" in refusal, false, "waiting would not help");
    })();
  } finally {
    await server.remove();
  }
});
