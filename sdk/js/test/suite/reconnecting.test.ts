import { expect, test } from "vitest";
import {
  type BusEvent,
  type ConnectionState,
  connect,
  type Delivery,
  DisconnectedError,
  TimeoutError,
} from "../../src/index.js";
import { all, client, control, fresh, gate, ownBus, ownProxy, shared, until } from "./bus.js";

const countTo = (n: number) => Array.from({ length: n }, (_, index) => index);

test("stores each event once although 200 answers are lost", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url, { reconnect: { minMs: 1, maxMs: 2 } });
  const topic = fresh("orders");
  let duplicates = 0;
  await control("loseAnswers", proxy.name, 200);
  for (const n of countTo(210)) duplicates += (await bus.publish(topic, n)).duplicate ? 1 : 0;
  expect((await control("countsOf", proxy.name)).lost).toBe(200);
  expect(duplicates).toBeGreaterThan(0);
  expect((await all(bus.export(topic))).map(({ payload }) => payload)).toEqual(countTo(210));
});

test("stores each event once and in order although full windows are cut repeatedly", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url, { window: 20 });
  const topic = fresh("orders");
  const published = countTo(2000).map((n) => bus.publish(topic, n));
  let answered = 0;
  for (const each of published) void each.then(() => (answered += 1));
  for (let cuts = 0; answered < 2000; cuts += 1) {
    const enough = answered + 97;
    await until(() => answered >= Math.min(2000, enough));
    if (cuts < 20) await control("cut", proxy.name);
  }
  await Promise.all(published);
  expect((await control("countsOf", proxy.name)).connections).toBeGreaterThan(10);
  expect((await all(bus.export(topic))).map(({ payload }) => payload)).toEqual(countTo(2000));
});

test("stores batches once although answers are lost", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url);
  const topic = fresh("orders");
  await control("loseAnswers", proxy.name, 5);
  const events = countTo(7000).map((payload) => ({ payload }));
  expect(await bus.publishBatch(topic, events)).toHaveLength(7000);
  expect((await all(bus.export(topic))).map(({ payload }) => payload)).toEqual(countTo(7000));
});

test("renews a subscription on the next connection", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url);
  const publisher = await client();
  const topic = fresh("orders");
  const got: unknown[] = [];
  await bus.subscribe(topic, "g", ({ payload }) => void got.push(payload));
  for (const n of countTo(10)) {
    await publisher.publish(topic, n);
    await until(() => got.includes(n));
    await control("cut", proxy.name);
  }
  expect([...new Set(got)]).toEqual(countTo(10));
});

test("a paused subscription stays paused across a reconnect", async () => {
  const proxy = await ownProxy(shared().http);
  const states: ConnectionState[] = [];
  const bus = await client(proxy.url, { onState: (state) => void states.push(state) });
  const publisher = await client();
  const [topic, other] = [fresh("orders"), fresh("other")];
  const got: unknown[] = [];
  const paused = await bus.subscribe(topic, "g", ({ payload }) => void got.push(payload));
  await bus.subscribe(other, "g", ({ payload }) => void got.push(payload));
  await paused.pause();
  await control("cut", proxy.name);
  // Checks the history, because the client may already be connected again.
  await until(() => states.includes("disconnected"));
  await publisher.publish(topic, "paused");
  await publisher.publish(other, "running");
  await until(() => got.length > 0);
  expect(got).toEqual(["running"]);
  expect(paused.isPaused).toBe(true);
  await paused.resume();
  await until(() => got.length > 1);
  expect(got).toEqual(["running", "paused"]);
});

test("reports the state of the connection", async () => {
  const proxy = await ownProxy(shared().http);
  const states: ConnectionState[] = [];
  const bus = await client(proxy.url, { onState: (state) => void states.push(state) });
  await control("cut", proxy.name);
  await until(() => states.filter((state) => state === "connected").length === 2);
  await bus.close();
  expect(states).toEqual(["connecting", "connected", "disconnected", "connecting", "connected", "closed"]);
  expect(bus.state).toBe("closed");
});

test("a killed bus keeps what it answered, and the rest is published after its restart", async () => {
  const own = await ownBus("limits.enabled=false");
  const bus = await client(own.http);
  const topic = fresh("orders");
  const got = new Map<string, BusEvent>();
  await bus.subscribe(topic, "g", (event) => void got.set(event.id, event), { from: "earliest" });
  const before = await Promise.all(countTo(50).map((n) => bus.publish(topic, n)));
  const during = countTo(50).map((n) => bus.publish(topic, 50 + n));
  await control("killBus", own.name);
  const after = countTo(10).map((n) => bus.publish(topic, 100 + n));
  await control("runBus", own.name);
  const published = [...before, ...(await Promise.all([...during, ...after]))];
  expect((await all(bus.replay(topic))).map(({ payload }) => payload)).toEqual(countTo(110));
  await until(() => published.every(({ id }) => got.has(id)));
});

test("waits for a bus that shut down", async () => {
  const own = await ownBus();
  const bus = await client(own.http);
  const topic = fresh("orders");
  await bus.subscribe(topic, "g", () => undefined);
  const stopped = control("stopBus", own.name);
  await until(() => bus.state !== "connected");
  await stopped;
  const published = bus.publish(topic, 1);
  await control("runBus", own.name);
  expect((await published).seq).toBe(1);
});

test("a lost connection aborts a handler's signal, and its event is not handled twice at once", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url);
  const topic = fresh("orders");
  const { opened, open } = gate();
  const deliveries: Delivery[] = [];
  await bus.subscribe(topic, "g", async (_, delivery) => {
    deliveries.push(delivery);
    await opened;
  });
  await bus.publish(topic, 1);
  await until(() => deliveries.length === 1);
  await control("cut", proxy.name);
  await until(() => deliveries[0]?.signal.aborted === true);
  expect(deliveries[0]?.signal.reason).toBeInstanceOf(DisconnectedError);
  // The event is redelivered to the handler that still runs, which then acknowledges it.
  await until(() => deliveries[0]?.attempt === 2);
  open();
  await until(async () => {
    const answer = await fetch(`${shared().http}/lag?topic=${topic}&group=g`);
    return ((await answer.json()) as { events: number }).events === 0;
  });
  expect(deliveries).toHaveLength(1);
});

test("reports why connecting failed", async () => {
  const proxy = await ownProxy(shared().http);
  await control("refuse", proxy.name, true);
  await expect(connect(proxy.url, { connectTimeoutMs: 200 })).rejects.toBeInstanceOf(TimeoutError);
  const abort = new AbortController();
  const connecting = connect(proxy.url, { signal: abort.signal });
  abort.abort(new Error("never mind"));
  await expect(connecting).rejects.toThrow("never mind");
  await expect(connect("ftp://example.org")).rejects.toThrow("unsupported protocol ftp:");
});
