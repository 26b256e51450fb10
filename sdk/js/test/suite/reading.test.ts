import { expect, test } from "vitest";
import { connect, type StreamGap, type StreamOptions } from "../../src/index.js";
import { all, client, control, fresh, ownBus, ownProxy, shared, until } from "./bus.js";

const countTo = (n: number) => Array.from({ length: n }, (_, index) => index);

/** Fills a topic with events that do not compress well. */
async function filledTopic(events: number) {
  const bus = await client();
  const topic = fresh("orders");
  await bus.publishBatch(
    topic,
    countTo(events).map((n) => ({ payload: { n, text: crypto.randomUUID() }, id: `e${n}`, ts: 1000 + n })),
  );
  return { bus, topic };
}

const numbers = (events: { payload: { n: number } }[]) => events.map(({ payload }) => payload.n);

test("replays all pages from the given start", async () => {
  const { bus, topic } = await filledTopic(25);
  const replay = (options: object) => all(bus.replay<{ n: number }>(topic, options));
  expect(numbers(await replay({ pageSize: 10 }))).toEqual(countTo(25));
  expect(numbers(await replay({ afterId: "e19" }))).toEqual([20, 21, 22, 23, 24]);
  expect(numbers(await replay({ ts: 1023, pageSize: 1 }))).toEqual([23, 24]);
});

test("exports the events between two times or after an event", async () => {
  const { bus, topic } = await filledTopic(25);
  const exported = (options: object) => all(bus.export<{ n: number }>(topic, options));
  expect(numbers(await exported({}))).toEqual(countTo(25));
  expect(numbers(await exported({ fromTs: 1003, toTs: 1005 }))).toEqual([3, 4, 5]);
  expect(numbers(await exported({ afterId: "e22" }))).toEqual([23, 24]);
});

test("a reader can break off and continue later", async () => {
  const { bus, topic } = await filledTopic(3000);
  for (const read of [bus.replay.bind(bus), bus.export.bind(bus)]) {
    const first: string[] = [];
    for await (const { id } of read(topic, {})) {
      first.push(id);
      if (first.length === 1234) break;
    }
    const rest = await all(read(topic, { afterId: first.at(-1) as string }));
    expect([...first, ...rest.map(({ id }) => id)]).toEqual(countTo(3000).map((n) => `e${n}`));
  }
});

test("an export continues after its last event when the connection is lost", async () => {
  const { topic } = await filledTopic(5000);
  const proxy = await ownProxy(shared().http);
  const bus = await connect(shared().ws, { httpUrl: proxy.url, reconnect: { minMs: 1, maxMs: 5 } });
  await control("limitBytes", proxy.name, [0, 50_000, 1, 60_001, 33_333]);
  expect(numbers(await all(bus.export<{ n: number }>(topic)))).toEqual(countTo(5000));
  expect((await control("countsOf", proxy.name)).connections).toBeGreaterThan(4);
  await bus.close();
});

test("a replay requests a lost page again", async () => {
  const { topic } = await filledTopic(2000);
  const proxy = await ownProxy(shared().http);
  const bus = await connect(shared().ws, { httpUrl: proxy.url, reconnect: { minMs: 1, maxMs: 5 } });
  await control("limitBytes", proxy.name, [5000, 1, 30_000]);
  expect(numbers(await all(bus.replay<{ n: number }>(topic, { pageSize: 500 })))).toEqual(countTo(2000));
  await bus.close();
});

test("reading ends with its signal", async () => {
  const { bus, topic } = await filledTopic(100);
  for (const read of [bus.replay.bind(bus), bus.export.bind(bus), bus.stream.bind(bus)]) {
    const abort = new AbortController();
    abort.abort(new Error("never mind"));
    await expect(all(read(topic, { signal: abort.signal }))).rejects.toThrow("never mind");
  }
});

test("reading fails if the bus stays unreachable", async () => {
  const proxy = await ownProxy(shared().http);
  await control("refuse", proxy.name, true);
  const bus = await connect(shared().ws, { httpUrl: proxy.url, reconnect: { minMs: 1, maxMs: 2 } });
  await expect(all(bus.export("orders"))).rejects.toMatchObject({ code: "disconnected" });
  await bus.close();
});

test("a stream yields stored and new events across lost connections", async () => {
  const { bus, topic } = await filledTopic(50);
  const proxy = await ownProxy(shared().http);
  const reader = await connect(shared().ws, { httpUrl: proxy.url, reconnect: { minMs: 1, maxMs: 5 } });
  const abort = new AbortController();
  const seqs: number[] = [];
  const reading = (async () => {
    for await (const { seq } of reader.stream(topic, { from: "earliest", signal: abort.signal })) seqs.push(seq);
  })();
  await until(() => seqs.length === 50);
  await control("cut", proxy.name);
  await bus.publish(topic, "one more");
  await until(() => seqs.length === 51);
  abort.abort(new Error("enough"));
  await expect(reading).rejects.toThrow("enough");
  expect(seqs).toEqual(countTo(51).map((n) => n + 1));
  await reader.close();
});

test("a stream continues with the first kept event and reports the gap", async () => {
  // The engine in memory removes single events, the one on disk whole files.
  const { ws, http } = await ownBus("server.engine=memory");
  const bus = await client(ws, { httpUrl: http });
  for (const id of ["e1", "e2"]) await bus.publish("orders", id, { id });
  const configure = async (settings: object) => {
    const response = await fetch(`${http}/topics/orders`, { method: "PUT", body: JSON.stringify(settings) });
    expect(response.status).toBe(200);
  };
  await configure({ retention_bytes: 1 });
  await configure({});
  await bus.publish("orders", "kept");
  const first = async (options: StreamOptions) => {
    for await (const { seq } of bus.stream("orders", options)) return seq;
  };
  const gaps: StreamGap[] = [];
  expect(await first({ afterId: "e1", onGap: (gap) => gaps.push(gap) })).toBe(3);
  expect(gaps).toEqual([{ next_seq: 3 }]);
  expect(await first({ afterId: "e1" })).toBe(3);
});

test("a stream starts with new events by default, and ends with its loop", async () => {
  const { bus, topic } = await filledTopic(5);
  const got: unknown[] = [];
  const publishing = setInterval(() => void bus.publish(topic, "new"), 20);
  for await (const { payload } of bus.stream(topic)) {
    got.push(payload);
    if (got.length === 3) break;
  }
  clearInterval(publishing);
  expect(got).toEqual(["new", "new", "new"]);
});

test("reading without an HTTP address says what is missing", async () => {
  const bus = await client(shared().ws);
  expect(() => bus.replay("orders")).toThrow("httpUrl");
});
