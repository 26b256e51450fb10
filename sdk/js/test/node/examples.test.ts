import { expect, test } from "vitest";
import { all, client, ownBus, until } from "../suite/bus.js";
import { run } from "./run-node.js";

test("monitor reports when heartbeats appear and when they stop", async () => {
  const { http: PROMBUS_URL } = await ownBus();
  const monitor = run(["examples/monitor.js", "400"], { PROMBUS_URL });
  const bus = await client(PROMBUS_URL);
  // The monitor has subscribed once it reports this heartbeat.
  const early = setInterval(() => void bus.publish("heartbeat.received", { count: 0 }, { key: "early" }), 50);
  await monitor.prints("early is up");
  clearInterval(early);
  const heartbeat = run(["examples/heartbeat.js", "node-1", "50"], { PROMBUS_URL });
  await heartbeat.prints("node-1: stored heartbeat 3 as event");
  await monitor.prints("node-1 is up, heartbeat");
  expect(await heartbeat.end("SIGINT")).toBe(0);
  await monitor.prints("node-1 is down");
  expect(await monitor.end("SIGINT")).toBe(0);
  const heartbeats = (await all(bus.replay<{ count: number }>("heartbeat.received"))).filter(
    ({ key }) => key === "node-1",
  );
  const numbers = heartbeats.map(({ payload }) => payload.count);
  expect(numbers.length).toBeGreaterThanOrEqual(3);
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
});

test("each order gets one invoice although the worker is killed repeatedly", async () => {
  const { http: PROMBUS_URL } = await ownBus("limits.enabled=false");
  const bus = await client(PROMBUS_URL);
  const orders = Array.from({ length: 300 }, (_, n) => ({
    id: `order-${n}`,
    key: `customer-${n % 3}`,
    payload: { items: [{ price: n, count: 2 }] },
  }));
  const invoices = () => all(bus.replay<{ order: string; total: number }>("invoices.created"));
  const publishing = (async () => {
    for (let n = 0; n < orders.length; n += 20) {
      await bus.publishBatch("orders.created", orders.slice(n, n + 20));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  for (let kills = 0; kills < 3; kills += 1) {
    const worker = run(["examples/invoices.js"], { PROMBUS_URL });
    await worker.prints("waiting for orders");
    await until(async () => (await invoices().catch(() => [])).length > kills * 40);
    await worker.end("SIGKILL");
  }
  const worker = run(["examples/invoices.js"], { PROMBUS_URL });
  await publishing;
  await until(async () => (await invoices()).length >= orders.length);
  expect(await worker.end("SIGINT")).toBe(0);
  const made = await invoices();
  const totals = Object.fromEntries(made.map(({ payload }) => [payload.order, payload.total]));
  expect(made).toHaveLength(300);
  expect(totals).toEqual(Object.fromEntries(orders.map(({ id, payload }) => [id, (payload.items[0]?.price ?? 0) * 2])));
  expect(made.every(({ caused_by, payload }) => caused_by?.[0] === payload.order)).toBe(true);
});

test("an order without items becomes a dead letter", async () => {
  const { http: PROMBUS_URL } = await ownBus("groups.retry.first_ms=10");
  const bus = await client(PROMBUS_URL);
  await bus.publish("orders.created", { items: [] }, { id: "empty" });
  const worker = run(["examples/invoices.js"], { PROMBUS_URL });
  await until(async () => (await all(bus.replay("dlq.orders.created")).catch(() => [])).length === 1);
  expect(worker.output.err).toContain("order empty: RejectError: an order without items");
});
