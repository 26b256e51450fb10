import assert from "node:assert/strict";
import { test } from "node:test";
import { fresh, withBus } from "./bus.mjs";

test("a published event gets an id and a sequence number", withBus(async (bus) => {
  const topic = fresh("one");
  const first = await bus.publish(topic, { n: 1 });
  assert.match(first.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  assert.equal(first.seq, 1);
  assert.equal("duplicate" in first, false);
  assert.equal((await bus.publish(topic, null)).seq, 2);
}));

test("a batch is stored in order, completely or not at all", withBus(async (bus) => {
  const topic = fresh("batch");
  const events = Array.from({ length: 1000 }, (_, n) => ({ payload: n, opts: { id: `b-${n}` } }));
  const { results } = await bus.ok({ op: "PUBLISH", topic, events });
  assert.deepEqual(results.map(({ id }) => id), events.map(({ opts }) => opts.id));
  assert.deepEqual(results.map(({ seq }) => seq), events.map((_, n) => n + 1));
  const bad = [{ payload: 1 }, { opts: {} }];
  const refusal = await bus.refused({ op: "PUBLISH", topic, events: bad }, "bad_frame");
  assert.match(refusal.msg, /events\[1\]/);
  const many = Array.from({ length: 1001 }, () => ({ payload: 1 }));
  await bus.refused({ op: "PUBLISH", topic, events: many }, "bad_frame");
  await bus.refused({ op: "PUBLISH", topic, events: [] }, "bad_frame");
  assert.equal((await bus.publish(topic, "next")).seq, 1001);
}));

test("an id is stored once", withBus(async (bus, connect) => {
  const topic = fresh("twice");
  await bus.publish(topic, "other");
  const first = await bus.publish(topic, "a", { id: "order-1" });
  assert.deepEqual([first.id, first.seq], ["order-1", 2]);
  const again = await (await connect()).publish(topic, "b", { id: "order-1" });
  assert.deepEqual([again.id, again.seq, again.duplicate], ["order-1", 2, true]);
  const events = [{ payload: 1, opts: { id: "order-1" } }, { payload: 2 }];
  const { results } = await bus.ok({ op: "PUBLISH", topic, events });
  assert.deepEqual(results.map(({ seq, duplicate }) => [seq, duplicate]), [[2, true], [3, undefined]]);
}));

test("an event is delivered as it was published", withBus(async (bus) => {
  const topic = fresh("whole");
  await bus.subscribe(topic, "g");
  const payload = { text: "Grüße, 世界 🚀 \u2028 \" \\ \n", deep: [[[{}]]], big: 12345678.5, no: null };
  const opts = {
    id: "évén-1", ts: 1_700_000_000_123, key: "schlüssel", headers: { b: "2", a: "ñ" },
    tags: ["x", "ÿ"], caused_by: ["évén-0"], sid: "s-1",
  };
  await bus.publish(topic, payload, opts);
  const { event, ctx, topic: deliveredTopic, group } = await bus.event();
  assert.deepEqual(event, { seq: 1, topic, payload, ...opts });
  assert.deepEqual([deliveredTopic, group, ctx.attempt], [topic, "g", 1]);
  assert.ok(ctx.ack_deadline_ms > 0 && ctx.ack_deadline_ms <= 30_000);
}));

test("500 frames sent at once are answered in order", withBus(async (bus) => {
  const topic = fresh("pipeline");
  const corrs = Array.from({ length: 500 }, (_, n) => `c-${n}`);
  for (const [n, corr] of corrs.entries()) {
    // Immediate refusals must not overtake answers that wait for the disk.
    if (n % 5 === 4) bus.send({ op: "NONSENSE", corr });
    else if (n % 5 === 3) bus.send({ op: "PAUSE", topic, group: "g", corr });
    else bus.send({ op: "PUBLISH", topic, payload: n, corr });
  }
  const answers = [];
  for (const _ of corrs) answers.push(await bus.answers.next("an answer"));
  assert.deepEqual(answers.map(({ corr }) => corr), corrs);
  const seqs = answers.filter(({ op }) => op === "OK").map(({ seq }) => seq);
  assert.deepEqual(seqs, Array.from({ length: 300 }, (_, n) => n + 1));
}));
