import assert from "node:assert/strict";
import { test } from "node:test";
import { fresh, withBus } from "./bus.mjs";

const payloads = async (bus, count) => {
  const found = [];
  while (found.length < count) found.push((await bus.event()).event.payload);
  return found;
};

test("a new group starts where it asks to", withBus(async (bus) => {
  const topic = fresh("from");
  for (const n of [1, 2, 3]) await bus.publish(topic, n, { id: `n-${n}`, ts: n * 1000 });
  await bus.subscribe(topic, "all", { from: "earliest" });
  assert.deepEqual(await payloads(bus, 3), [1, 2, 3]);
  await bus.subscribe(topic, "time", { from: "ts", ts: 2000 });
  assert.deepEqual(await payloads(bus, 2), [2, 3]);
  await bus.subscribe(topic, "after", { from: "afterId", afterId: "n-2" });
  assert.deepEqual(await payloads(bus, 1), [3]);
  await bus.subscribe(topic, "new");
  await bus.publish(topic, 4);
  const groups = [];
  for (const _ of "abcd") {
    const { group, event } = await bus.event();
    assert.equal(event.payload, 4);
    groups.push(group);
  }
  assert.deepEqual(groups.sort(), ["after", "all", "new", "time"]);
}));

test("an existing group continues from its cursor, whatever `from` says", withBus(async (bus, connect) => {
  const topic = fresh("cursor");
  for (const n of [1, 2, 3]) await bus.publish(topic, n);
  const first = await connect();
  await first.subscribe(topic, "g", { from: "earliest", maxInFlight: 1 });
  await first.ack(topic, "g", (await first.event()).event.id);
  const unfinished = await first.event();
  assert.deepEqual([unfinished.event.payload, unfinished.ctx.attempt], [2, 1]);
  await first.close();
  await bus.subscribe(topic, "g", { from: "latest" });
  const again = await bus.event();
  assert.deepEqual([again.event.payload, again.ctx.attempt], [2, 2]);
  assert.equal((await bus.event()).event.payload, 3);
}));

test("NACK redelivers an event after its delay", withBus(async (bus) => {
  const topic = fresh("nack");
  await bus.subscribe(topic, "g");
  const { id } = await bus.publish(topic, "x");
  assert.equal((await bus.event()).ctx.attempt, 1);
  await bus.ok({ op: "NACK", topic, group: "g", id, reason: "not now", delay_ms: 0 });
  assert.equal((await bus.event()).ctx.attempt, 2);
  const nacked = Date.now();
  await bus.ok({ op: "NACK", topic, group: "g", id, delay_ms: 300 });
  assert.equal((await bus.event()).ctx.attempt, 3);
  assert.ok(Date.now() - nacked >= 290);
  assert.equal("stale" in (await bus.ack(topic, "g", id)), false);
  assert.equal((await bus.ack(topic, "g", id)).stale, true);
  assert.equal((await bus.ok({ op: "NACK", topic, group: "g", id })).stale, true);
}));

test("a lease ends at its deadline, which MODACK moves", withBus(async (bus) => {
  const topic = fresh("modack");
  await bus.subscribe(topic, "g", { ackTimeoutMs: 500 });
  const { id } = await bus.publish(topic, "x");
  await bus.event();
  assert.equal((await bus.event()).ctx.attempt, 2);
  const extended = Date.now();
  await bus.ok({ op: "MODACK", topic, group: "g", id, extend_ms: 1500 });
  assert.equal((await bus.event()).ctx.attempt, 3);
  assert.ok(Date.now() - extended >= 1400);
  await bus.ack(topic, "g", id);
  await bus.refused({ op: "MODACK", topic, group: "g", id, extend_ms: 1500 }, "lease_lost");
}));

test("PAUSE stops deliveries and RESUME continues them", withBus(async (bus) => {
  const topic = fresh("pause");
  const membership = { topic, group: "g" };
  await bus.subscribe(topic, "g");
  await bus.ok({ op: "PAUSE", ...membership });
  await bus.publish(topic, 1);
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(bus.events.length, 0);
  await bus.ok({ op: "RESUME", ...membership });
  assert.equal((await bus.event()).event.payload, 1);
}));

test("UNSUBSCRIBE releases unacknowledged events to other members", withBus(async (bus, connect) => {
  const topic = fresh("unsubscribe");
  await bus.subscribe(topic, "g");
  await bus.publish(topic, 1);
  await bus.event();
  await bus.ok({ op: "UNSUBSCRIBE", topic, group: "g" });
  await bus.refused({ op: "UNSUBSCRIBE", topic, group: "g" }, "not_subscribed");
  const other = await connect();
  await other.subscribe(topic, "g");
  assert.equal((await other.event()).ctx.attempt, 2);
}));

test("ACK publishes in the same commit or not at all", withBus(async (bus) => {
  const [topic, next] = [fresh("step"), fresh("step")];
  await bus.subscribe(topic, "g");
  const { id } = await bus.publish(topic, 1);
  await bus.event();
  const publish = [{ topic: next, payload: "a" }, { topic: next, payload: "b", opts: { id: "b" } }];
  const frame = { op: "ACK", topic, group: "g", id, publish };
  const { results } = await bus.ok(frame);
  assert.deepEqual(results.map(({ seq }) => seq), [1, 2]);
  assert.equal(results[1].id, "b");
  await bus.refused(frame, "lease_lost");
  assert.equal((await bus.publish(next, "c")).seq, 3);
}));

test("an event becomes a dead letter after its last attempt", withBus(async (bus) => {
  const topic = fresh("dead");
  await bus.subscribe(`dlq.${topic}`, "g", { from: "earliest" });
  await bus.subscribe(topic, "g", { maxAttempts: 2 });
  const { id } = await bus.publish(topic, { n: 1 }, { key: "k" });
  for (const attempt of [1, 2]) {
    const delivery = await bus.event();
    assert.deepEqual([delivery.event.id, delivery.ctx.attempt], [id, attempt]);
    await bus.ok({ op: "NACK", topic, group: "g", id, reason: "it is broken", delay_ms: 0 });
  }
  const letter = await bus.event();
  assert.equal(letter.topic, `dlq.${topic}`);
  const { original, err, attempts, ts, ...rest } = letter.event.payload;
  assert.deepEqual(rest, { topic, group: "g" });
  assert.deepEqual([original.id, original.key, original.payload], [id, "k", { n: 1 }]);
  assert.deepEqual([err, attempts, typeof ts], ["it is broken", 2, "number"]);
}));

test("two consumers share 1,000 events without loss or duplicates", withBus(async (bus, connect) => {
  const topic = fresh("share");
  const consumers = [await connect(), await connect()];
  for (const consumer of consumers) {
    await consumer.subscribe(topic, "g", { from: "earliest", maxInFlight: 20 });
  }
  const events = Array.from({ length: 1000 }, (_, payload) => ({ payload }));
  await bus.ok({ op: "PUBLISH", topic, events });
  const seen = [];
  const shares = [0, 0];
  let done;
  const all = new Promise((resolve) => (done = resolve));
  const consume = async (consumer, index) => {
    for (;;) {
      const delivery = await Promise.race([consumer.event(), all]);
      if (!delivery) return;
      seen.push(delivery.event.payload);
      shares[index] += 1;
      await consumer.ack(topic, "g", delivery.event.id);
      if (seen.length >= 1000) done();
    }
  };
  await Promise.all(consumers.map(consume));
  assert.deepEqual(seen.sort((a, b) => a - b), events.map(({ payload }) => payload));
  assert.ok(shares.every((share) => share > 0), `${shares}`);
  assert.equal(consumers[0].events.length + consumers[1].events.length, 0);
}));
