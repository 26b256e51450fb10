import { expect, test } from "vitest";
import { QueueFullError, RefusedError, TimeoutError } from "../../src/index.js";
import { all, client, control, fresh, ownProxy, shared, until } from "./bus.js";

test("stores an event as it was published", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const options = {
    id: "order-1",
    ts: 5,
    key: "customer-7",
    headers: { trace: "abc" },
    tags: ["big"],
    causedBy: ["cart-1"],
    sid: "s-1",
  };
  expect(await bus.publish(topic, { order: 1, name: "Žofia 😀" }, options)).toEqual({
    id: "order-1",
    seq: 1,
    duplicate: false,
  });
  expect(await all(bus.replay(topic))).toEqual([
    {
      seq: 1,
      id: "order-1",
      ts: 5,
      topic,
      key: "customer-7",
      headers: { trace: "abc" },
      payload: { order: 1, name: "Žofia 😀" },
      caused_by: ["cart-1"],
      tags: ["big"],
      sid: "s-1",
    },
  ]);
});

test("stores an id once", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const first = await bus.publish(topic, 1, { id: "a" });
  expect(await bus.publish(topic, 2, { id: "a" })).toEqual({ ...first, duplicate: true });
});

test("generates increasing ids in the order of publishing", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const published = await Promise.all(Array.from({ length: 300 }, (_, n) => bus.publish(topic, n)));
  expect(published.map(({ seq }) => seq)).toEqual(Array.from({ length: 300 }, (_, n) => n + 1));
  const ids = published.map(({ id }) => id);
  expect(ids).toEqual([...ids].sort());
});

test("accepts any JSON payload, including null, and nothing else", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const payloads = [null, false, 0, "", [], {}, "text", [1, [2]], { a: { b: null } }];
  for (const payload of payloads) await bus.publish(topic, payload);
  expect((await all(bus.replay(topic))).map(({ payload }) => payload)).toEqual(payloads);
  await expect(bus.publish(topic, undefined)).rejects.toMatchObject({ code: "bad_json" });
});

test("a batch keeps its order across frames", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const events = Array.from({ length: 5500 }, (_, n) => ({ payload: n, key: `k${n % 7}` }));
  const published = await bus.publishBatch(topic, events);
  expect(published.map(({ seq }) => seq)).toEqual(events.map((_, n) => n + 1));
  const stored = await all(bus.export<number>(topic));
  expect(stored.map(({ payload, key }) => ({ payload, key }))).toEqual(events);
  expect(stored.map(({ id }) => id)).toEqual(published.map(({ id }) => id));
});

test("splits a batch of large events into frames below the limit", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const large = "ž".repeat(150_000);
  const published = await bus.publishBatch(
    topic,
    Array.from({ length: 12 }, (_, n) => ({ payload: { n, large } })),
  );
  expect(published).toHaveLength(12);
});

test("accepts an empty batch", async () => {
  const bus = await client();
  expect(await bus.publishBatch(fresh("orders"), [])).toEqual([]);
});

test("rejects an event that is larger than a frame before sending it", async () => {
  const bus = await client();
  const large = "x".repeat(1024 * 1024);
  await expect(bus.publish(fresh("orders"), large)).rejects.toMatchObject({ code: "payload_too_large" });
  await expect(bus.publishBatch(fresh("orders"), [{ payload: large }])).rejects.toBeInstanceOf(RefusedError);
  expect(bus.state).toBe("connected");
});

test("a frame that only the bus finds too large fails, and those after it are stored", async () => {
  const bus = await client(shared().http, { maxFrameBytes: 16 * 1024 * 1024 });
  const topic = fresh("orders");
  const before = bus.publish(topic, "before");
  const large = bus.publish(topic, "x".repeat(1024 * 1024));
  const after = bus.publish(topic, "after");
  await expect(large).rejects.toMatchObject({ code: "payload_too_large" });
  await Promise.all([before, after]);
  expect((await all(bus.replay(topic))).map(({ payload }) => payload)).toEqual(["before", "after"]);
});

test("sends no more unanswered frames than the window admits, and lets callers wait", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url, { window: 5, maxWaiting: 20 });
  const topic = fresh("orders");
  await control("refuse", proxy.name, true);
  await control("cut", proxy.name);
  await until(() => bus.state !== "connected");
  const published = Array.from({ length: 25 }, (_, n) => bus.publish(topic, n));
  expect(bus.inFlight).toBe(5);
  await expect(bus.publish(topic, "one more")).rejects.toBeInstanceOf(QueueFullError);
  await control("refuse", proxy.name, false);
  expect((await Promise.all(published)).map(({ seq }) => seq)).toEqual(Array.from({ length: 25 }, (_, n) => n + 1));
  expect(bus.inFlight).toBe(0);
});

test("a publish ends with its timeout or signal, also while it waits for room", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url, { window: 1 });
  const topic = fresh("orders");
  await control("refuse", proxy.name, true);
  await control("cut", proxy.name);
  await until(() => bus.state !== "connected");
  const abort = new AbortController();
  const [late, cancelled, waiting] = [
    bus.publish(topic, 1, { timeoutMs: 100 }),
    bus.publish(topic, 2, { signal: abort.signal }),
    bus.publish(topic, 3),
  ];
  abort.abort(new Error("never mind"));
  await expect(cancelled).rejects.toThrow("never mind");
  await expect(late).rejects.toBeInstanceOf(TimeoutError);
  await control("refuse", proxy.name, false);
  expect((await waiting).seq).toBe(1);
});

test("does not retry permanent refusals", async () => {
  const bus = await client();
  await expect(bus.publish("Not A Topic", 1)).rejects.toMatchObject({
    name: "RefusedError",
    code: "bad_topic",
    isRetryable: false,
  });
  await expect(bus.publish("orders", 1, { ts: -1 })).rejects.toMatchObject({ code: "bad_frame" });
});

test("closing waits for unanswered publishes", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const published = Array.from({ length: 100 }, (_, n) => bus.publish(topic, n));
  await bus.close();
  expect(await Promise.all(published)).toHaveLength(100);
  await expect(bus.publish(topic, 1)).rejects.toMatchObject({ code: "closed" });
  expect(await bus.ended).toBeUndefined();
});
