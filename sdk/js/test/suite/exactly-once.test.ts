import { expect, test } from "vitest";
import { type BusEvent, type DedupeStore, MemoryDedupe, NackError } from "../../src/index.js";
import { all, client, control, fresh, gate, ownBus, ownProxy, shared, until } from "./bus.js";

const countTo = (n: number) => Array.from({ length: n }, (_, index) => index);

async function lag(topic: string, group = "g"): Promise<number> {
  const answer = await fetch(`${shared().http}/lag?topic=${topic}&group=${group}`);
  return ((await answer.json()) as { events: number }).events;
}

const isCaughtUp = (topic: string) => async () => (await lag(topic)) === 0;

test("handles and marks each event once", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const got: unknown[] = [];
  await bus.subscribeExactlyOnce(topic, "g", ({ payload }) => void got.push(payload), { concurrency: 10 });
  const published = await bus.publishBatch(
    topic,
    countTo(200).map((payload) => ({ payload })),
  );
  await until(isCaughtUp(topic));
  expect(got).toEqual(countTo(200));
  for (const { id } of published.slice(0, 10)) expect(await bus.seen(topic, "g", id)).toBe(true);
  expect(await bus.seen(topic, "other", published[0]?.id as string)).toBe(false);
});

test("acknowledges marked events without handling them", async () => {
  const bus = await client();
  const topic = fresh("orders");
  await bus.publishBatch(
    topic,
    countTo(20).map((n) => ({ payload: n, id: `e${n}` })),
  );
  for (const n of [3, 7, 19]) await bus.mark(topic, "g", `e${n}`);
  const got: unknown[] = [];
  await bus.subscribeExactlyOnce(topic, "g", ({ payload }) => void got.push(payload), { from: "earliest" });
  await until(isCaughtUp(topic));
  expect(got).toEqual(countTo(20).filter((n) => ![3, 7, 19].includes(n)));
});

test("a handler that throws leaves no mark, and its event is handled again", async () => {
  const bus = await client();
  const topic = fresh("orders");
  let seenBetween: boolean | undefined;
  let runs = 0;
  const subscription = await bus.subscribeExactlyOnce(topic, "g", async ({ id }, { attempt }) => {
    runs += 1;
    if (attempt === 1) throw new NackError("not yet", { delayMs: 0 });
    seenBetween = await bus.seen(topic, "g", id);
  });
  const { id } = await bus.publish(topic, 1);
  await until(isCaughtUp(topic));
  await subscription.stop();
  expect(runs).toBe(2);
  expect(seenBetween).toBe(false);
  expect(await bus.seen(topic, "g", id)).toBe(true);
});

test("handles no event twice although answers are lost", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url);
  const publisher = await client();
  const topic = fresh("orders");
  const runs = new Map<unknown, number>();
  const count = ({ payload }: BusEvent) => void runs.set(payload, (runs.get(payload) ?? 0) + 1);
  await bus.subscribeExactlyOnce(topic, "g", count, { maxAttempts: 1000 });
  for (const n of countTo(60)) {
    await publisher.publish(topic, n);
    // Loses what the bus sends next, with the connection: an event, or the answer to SEEN, ACK or MARK.
    if (n % 3 === 0) await control("loseAnswers", proxy.name, 1 + (n % 4));
    if (n % 5 === 0) await until(() => runs.size > n - 5);
  }
  await until(isCaughtUp(topic));
  expect((await control("countsOf", proxy.name)).lost).toBeGreaterThan(10);
  expect([...runs.keys()].sort((a, b) => Number(a) - Number(b))).toEqual(countTo(60));
  expect([...runs.values()].filter((count) => count !== 1)).toEqual([]);
});

test("marks an event on the next connection if its handler finished without one", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url);
  const topic = fresh("orders");
  const { opened, open } = gate();
  let runs = 0;
  await bus.subscribeExactlyOnce(topic, "g", async () => {
    runs += 1;
    await opened;
  });
  const { id } = await bus.publish(topic, 1);
  await until(() => runs === 1);
  await control("refuse", proxy.name, true);
  await control("cut", proxy.name);
  await until(() => bus.state !== "connected");
  open();
  await control("refuse", proxy.name, false);
  await until(isCaughtUp(topic));
  expect(runs).toBe(1);
  expect(await bus.seen(topic, "g", id)).toBe(true);
});

test("handles no event twice although the bus is killed repeatedly", async () => {
  const own = await ownBus("limits.enabled=false");
  const bus = await client(own.http);
  const topic = fresh("orders");
  const runs = new Map<unknown, number>();
  await bus.subscribeExactlyOnce<number>(
    topic,
    "g",
    async ({ payload }) => {
      runs.set(payload, (runs.get(payload) ?? 0) + 1);
      await Promise.resolve();
    },
    { concurrency: 4 },
  );
  const published = countTo(400).map((n) => bus.publish(topic, n));
  for (const enough of [50, 150, 250]) {
    await until(() => runs.size >= enough);
    await control("killBus", own.name);
    await control("runBus", own.name);
  }
  await Promise.all(published);
  await until(() => runs.size === 400);
  await bus.close();
  expect([...runs.values()].filter((count) => count !== 1)).toEqual([]);
});

test("marks events in the user's store before acknowledging them", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const memory = new MemoryDedupe();
  const steps: string[] = [];
  const store: DedupeStore = {
    seen: (...names) => memory.seen(...names),
    mark: async (...names) => {
      steps.push(`marked with lag ${await lag(topic)}`);
      memory.mark(...names);
    },
  };
  memory.mark(topic, "g", "done-before", 60_000);
  await bus.subscribeExactlyOnce(topic, "g", ({ id }) => void steps.push(`handled ${id}`), { dedupe: store });
  await bus.publish(topic, 1, { id: "done-before" });
  await bus.publish(topic, 2, { id: "new" });
  await until(isCaughtUp(topic));
  expect(steps).toEqual(["handled new", expect.stringMatching(/^marked with lag [12]$/)]);
  expect(memory.seen(topic, "g", "new")).toBe(true);
  expect(await bus.seen(topic, "g", "new")).toBe(false);
});

test("retries a store that fails to mark, but not the handler", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const memory = new MemoryDedupe();
  const errors: unknown[] = [];
  let runs = 0;
  let failures = 2;
  const store: DedupeStore = {
    seen: (...names) => memory.seen(...names),
    mark: (...names) => {
      failures -= 1;
      if (failures >= 0) throw new Error("the database is down");
      memory.mark(...names);
    },
  };
  const handler = () => {
    runs += 1;
  };
  await bus.subscribeExactlyOnce(topic, "g", handler, {
    dedupe: store,
    onError: (error) => void errors.push(error),
  });
  const { id } = await bus.publish(topic, 1);
  await until(isCaughtUp(topic));
  expect(runs).toBe(1);
  expect(errors.map(String)).toEqual(["Error: the database is down", "Error: the database is down"]);
  expect(memory.seen(topic, "g", id)).toBe(true);
});

test("publishes the results of a transforming handler with the acknowledgement", async () => {
  const bus = await client();
  const [orders, invoices, audit] = [fresh("orders"), fresh("invoices"), fresh("audit")];
  await bus.transformExactlyOnce<{ total: number }>(orders, "g", async ({ id, payload }) => [
    { topic: invoices, payload: { sum: payload.total + 1 }, causedBy: [id] },
    { topic: audit, payload: "billed", key: "k" },
  ]);
  const published = await bus.publishBatch(
    orders,
    countTo(30).map((total) => ({ payload: { total } })),
  );
  await until(isCaughtUp(orders));
  const stored = await all(bus.replay<{ sum: number }>(invoices));
  expect(stored.map(({ payload }) => payload.sum)).toEqual(countTo(30).map((n) => n + 1));
  expect(stored.map(({ caused_by }) => caused_by)).toEqual(published.map(({ id }) => [id]));
  expect(await all(bus.replay(audit))).toHaveLength(30);
  expect(await bus.seen(orders, "g", published[0]?.id as string)).toBe(true);
});

test("a transforming handler may return nothing, and is skipped for marked events", async () => {
  const bus = await client();
  const [orders, invoices] = [fresh("orders"), fresh("invoices")];
  await bus.publishBatch(orders, [
    { payload: "skip", id: "a" },
    { payload: "take", id: "b" },
    { payload: "take", id: "c" },
  ]);
  await bus.mark(orders, "g", "b");
  const handled: string[] = [];
  const take = ({ payload, id }: BusEvent) => {
    handled.push(id);
    return payload === "take" ? [{ topic: invoices, payload: id }] : undefined;
  };
  await bus.transformExactlyOnce(orders, "g", take, { from: "earliest" });
  await until(isCaughtUp(orders));
  expect((await all(bus.replay(invoices))).map(({ payload }) => payload)).toEqual(["c"]);
  expect(handled).toEqual(["a", "c"]);
});

test("publishes nothing for an event that was marked while its handler ran", async () => {
  const bus = await client();
  const [orders, invoices] = [fresh("orders"), fresh("invoices")];
  await bus.publishBatch(orders, [
    { payload: 1, id: "a" },
    { payload: 2, id: "b" },
  ]);
  const errors: unknown[] = [];
  const transform = async ({ id }: BusEvent) => {
    if (id === "a") await bus.mark(orders, "g", id);
    return [{ topic: invoices, payload: id }];
  };
  await bus.transformExactlyOnce(orders, "g", transform, {
    from: "earliest",
    onError: (error) => void errors.push(error),
  });
  await until(isCaughtUp(orders));
  expect((await all(bus.replay(invoices))).map(({ payload }) => payload)).toEqual(["b"]);
  expect(errors).toEqual([]);
});

test("nacks an event whose results cannot be published, with the reason", async () => {
  const bus = await client();
  const orders = fresh("orders");
  const letters: BusEvent[] = [];
  const errors: unknown[] = [];
  await bus.subscribe(`dlq.${orders}`, "people", (letter) => void letters.push(letter), { from: "earliest" });
  await bus.transformExactlyOnce(orders, "g", () => [{ topic: "Not A Topic", payload: 1 }], {
    maxAttempts: 1,
    onError: (error) => void errors.push(error),
  });
  await bus.publish(orders, 1);
  await until(() => letters.length === 1);
  expect(letters[0]?.payload).toMatchObject({ attempts: 1, err: (errors[0] as Error).message });
  expect(errors).toMatchObject([{ code: "bad_topic" }]);
});

test("each event produces one result although connections are lost", async () => {
  const proxy = await ownProxy(shared().http);
  const bus = await client(proxy.url);
  const publisher = await client();
  const [orders, invoices] = [fresh("orders"), fresh("invoices")];
  const transform = ({ payload }: BusEvent) => [{ topic: invoices, payload }];
  await bus.transformExactlyOnce(orders, "g", transform, { concurrency: 8, maxAttempts: 1000 });
  const published = countTo(300).map((n) => publisher.publish(orders, n));
  for (let cuts = 0; cuts < 20; cuts += 1) {
    if (cuts % 2 === 0) await control("cut", proxy.name);
    else await control("loseAnswers", proxy.name, 2);
  }
  await Promise.all(published);
  await until(isCaughtUp(orders));
  const stored = (await all(publisher.replay<number>(invoices))).map(({ payload }) => payload);
  expect(stored.sort((a, b) => a - b)).toEqual(countTo(300));
});
