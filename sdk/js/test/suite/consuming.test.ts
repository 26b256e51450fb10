import { expect, test } from "vitest";
import { type BusEvent, NackError, RefusedError, RejectError } from "../../src/index.js";
import { client, fresh, gate, shared, until } from "./bus.js";

interface GroupStatus {
  group: string;
  members: number;
  in_flight: number;
  lag_events: number;
}

async function groupStatus(topic: string, name = "g"): Promise<GroupStatus | undefined> {
  const answer = await fetch(`${shared().http}/groups?topic=${topic}`);
  const { groups } = (await answer.json()) as { groups: GroupStatus[] };
  return groups.find(({ group }) => group === name);
}

const isCaughtUp = (topic: string) => async () => (await groupStatus(topic))?.lag_events === 0;

test("handles and acknowledges events in order, one at a time", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const got: number[] = [];
  let running = 0;
  let mostRunning = 0;
  await bus.subscribe<number>(topic, "g", async ({ payload }) => {
    running += 1;
    mostRunning = Math.max(mostRunning, running);
    await Promise.resolve();
    running -= 1;
    got.push(payload);
  });
  await bus.publishBatch(
    topic,
    Array.from({ length: 500 }, (_, n) => ({ payload: n })),
  );
  await until(isCaughtUp(topic));
  expect(got).toEqual(Array.from({ length: 500 }, (_, n) => n));
  expect(mostRunning).toBe(1);
});

test("a new group starts where it asks to, and an existing one where it stopped", async () => {
  const bus = await client();
  const topic = fresh("orders");
  await bus.publishBatch(
    topic,
    [1, 2, 3, 4].map((n) => ({ payload: n, id: `e${n}`, ts: n * 10 })),
  );
  const expected = { earliest: [1, 2, 3, 4, 5], latest: [5], byTime: [3, 4, 5], afterId: [2, 3, 4, 5] };
  const got: Record<string, number[]> = { earliest: [], latest: [], byTime: [], afterId: [] };
  const collect = (name: string) => (event: BusEvent<number>) => void got[name]?.push(event.payload);
  await bus.subscribe(topic, "latest", collect("latest"));
  await bus.subscribe(topic, "by-time", collect("byTime"), { from: { ts: 25 } });
  await bus.subscribe(topic, "after-id", collect("afterId"), { from: { afterId: "e1" } });
  const earliest = await bus.subscribe(topic, "earliest", collect("earliest"), { from: "earliest" });
  await until(async () => (await groupStatus(topic, "earliest"))?.lag_events === 0);
  await earliest.stop();
  await bus.publish(topic, 5);
  await bus.subscribe(topic, "earliest", collect("earliest"), { from: "earliest" });
  await until(() => Object.entries(expected).every(([name, list]) => got[name]?.length === list.length));
  expect(got).toEqual(expected);
});

test("runs as many handlers at once as configured", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const { opened, open } = gate();
  let running = 0;
  let mostRunning = 0;
  await bus.subscribe(
    topic,
    "g",
    async () => {
      running += 1;
      mostRunning = Math.max(mostRunning, running);
      await opened;
      running -= 1;
    },
    { concurrency: 7 },
  );
  await bus.publishBatch(
    topic,
    Array.from({ length: 40 }, (_, n) => ({ payload: n })),
  );
  await until(() => running === 7);
  expect((await groupStatus(topic))?.in_flight).toBeLessThanOrEqual(16);
  open();
  await until(isCaughtUp(topic));
  expect(mostRunning).toBe(7);
});

test("an event whose handler throws is redelivered", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const attempts: number[] = [];
  const errors: unknown[] = [];
  await bus.subscribe(
    topic,
    "g",
    (_, { attempt, group }) => {
      attempts.push(attempt);
      expect(group).toBe("g");
      if (attempt === 1) throw new Error("not today");
      if (attempt === 2) throw new NackError("not now", { delayMs: 0 });
    },
    { onError: (error) => void errors.push(error) },
  );
  await bus.publish(topic, 1);
  await until(isCaughtUp(topic));
  expect(attempts).toEqual([1, 2, 3]);
  expect(errors.map(String)).toEqual(["Error: not today", "NackError: not now"]);
});

test("an event becomes a dead letter after its last attempt, with the reason", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const letters: BusEvent[] = [];
  await bus.subscribe(`dlq.${topic}`, "people", (letter) => void letters.push(letter), { from: "earliest" });
  await bus.subscribe(
    topic,
    "g",
    () => {
      throw new NackError("no such address", { delayMs: 0 });
    },
    { maxAttempts: 2 },
  );
  const { id } = await bus.publish(topic, "hello");
  await until(() => letters.length > 0);
  expect(letters[0]?.payload).toMatchObject({
    topic,
    group: "g",
    err: "no such address",
    attempts: 2,
    original: { id, payload: "hello" },
  });
  expect(letters[0]?.caused_by).toEqual([id]);
});

test("a rejected event becomes a dead letter after one attempt, and the next one is handled", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const letters: BusEvent[] = [];
  const attempts: [unknown, number][] = [];
  const errors: unknown[] = [];
  await bus.subscribe(`dlq.${topic}`, "people", (letter) => void letters.push(letter), { from: "earliest" });
  await bus.subscribe(
    topic,
    "g",
    ({ payload }, { attempt }) => {
      attempts.push([payload, attempt]);
      if (payload === 1) throw new RejectError("no such article", { cause: "its number" });
    },
    { onError: (error) => void errors.push(error) },
  );
  const { id } = await bus.publish(topic, 1);
  await bus.publish(topic, 2);
  await until(isCaughtUp(topic));
  await until(() => letters.length > 0);
  expect(letters.map(({ payload }) => payload)).toMatchObject([
    { topic, group: "g", err: "no such article", attempts: 1, original: { id, payload: 1 } },
  ]);
  expect(attempts).toEqual([
    [1, 1],
    [2, 1],
  ]);
  expect(errors.map(String)).toEqual(["RejectError: no such article"]);
});

test("extends the leases of the running handler and of the events waiting behind it", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const attempts: number[] = [];
  const deadlines: number[] = [];
  await bus.subscribe(
    topic,
    "g",
    async (_, delivery) => {
      attempts.push(delivery.attempt);
      const first = delivery.deadline;
      // The deadline moves only after the bus has extended the lease.
      if (attempts.length === 1) await until(() => delivery.deadline > first + 1000);
      deadlines.push(delivery.deadline - first);
      expect(delivery.signal.aborted).toBe(false);
    },
    { ackTimeoutMs: 3000 },
  );
  await bus.publishBatch(topic, [{ payload: 1 }, { payload: 2 }]);
  await until(isCaughtUp(topic));
  expect(attempts).toEqual([1, 1]);
  expect(deadlines[0]).toBeGreaterThan(1000);
});

test("starts no handler while paused, and handles all events after resuming", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const got: unknown[] = [];
  const subscription = await bus.subscribe(topic, "g", ({ payload }) => void got.push(payload));
  await subscription.pause();
  await bus.publish(topic, 1);
  await bus.publish(topic, 2);
  expect(got).toEqual([]);
  expect((await groupStatus(topic))?.in_flight).toBe(0);
  await subscription.resume();
  await until(isCaughtUp(topic));
  expect(got).toEqual([1, 2]);
});

test("stopping lets running handlers finish and starts no others", async () => {
  const bus = await client();
  const topic = fresh("orders");
  const { opened, open } = gate();
  const finished: unknown[] = [];
  const subscription = await bus.subscribe(topic, "g", async ({ payload }) => {
    await opened;
    finished.push(payload);
  });
  await bus.publishBatch(topic, [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
  await until(async () => (await groupStatus(topic))?.in_flight === 3);
  const stopped = subscription.stop();
  open();
  await stopped;
  expect(await subscription.ended).toBeUndefined();
  expect(finished).toEqual([1]);
  expect(await groupStatus(topic)).toMatchObject({ members: 0, in_flight: 0, lag_events: 2 });
});

test("stopping aborts a handler that does not finish in time", async () => {
  const bus = await client();
  const topic = fresh("orders");
  let aborted = false;
  const subscription = await bus.subscribe(topic, "g", (_, { signal }) => {
    return new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => {
        aborted = true;
        reject(signal.reason);
      });
    });
  });
  await bus.publish(topic, 1);
  await until(async () => (await groupStatus(topic))?.in_flight === 1);
  await subscription.stop({ timeoutMs: 10 });
  expect(aborted).toBe(true);
  expect((await groupStatus(topic))?.lag_events).toBe(1);
});

test("members of a group share its events", async () => {
  const clients = [await client(), await client()];
  const topic = fresh("orders");
  const got: [unknown[], unknown[]] = [[], []];
  for (const [n, bus] of clients.entries()) {
    await bus.subscribe(topic, "g", ({ payload }) => void got[n as 0 | 1].push(payload), { maxInFlight: 1 });
  }
  await clients[0]?.publishBatch(
    topic,
    Array.from({ length: 50 }, (_, n) => ({ payload: n })),
  );
  await until(isCaughtUp(topic));
  expect([...got[0], ...got[1]].sort((a, b) => Number(a) - Number(b))).toEqual(Array.from({ length: 50 }, (_, n) => n));
  expect(got[0].length * got[1].length).toBeGreaterThan(0);
});

test("rejects a second subscription and invalid ones", async () => {
  const bus = await client();
  const topic = fresh("orders");
  await bus.subscribe(topic, "g", () => undefined);
  const refused = (promise: Promise<unknown>, code: string) => expect(promise).rejects.toMatchObject({ code });
  await refused(
    bus.subscribe(topic, "g", () => undefined),
    "already_subscribed",
  );
  await refused(
    bus.subscribe(topic, "Not A Group", () => undefined),
    "bad_group",
  );
  await refused(
    bus.subscribe(topic, "h", () => undefined, { from: { afterId: "none" } }),
    "unknown_id",
  );
  await refused(
    bus.subscribe(topic, "h", () => undefined, { maxInFlight: 0 }),
    "bad_frame",
  );
  await expect(bus.subscribe(topic, "h", () => undefined, { concurrency: 0 })).rejects.toBeInstanceOf(RangeError);
  await expect(bus.subscribe("Bad", "h", () => undefined)).rejects.toBeInstanceOf(RefusedError);
  const again = await bus.subscribe(topic, "h", () => undefined);
  await again.stop();
  await bus.subscribe(topic, "h", () => undefined);
});

test("disposing stops a subscription and closes a client", async () => {
  const topic = fresh("orders");
  const bus = await client();
  await bus.publish(topic, 1);
  const subscription = await bus.subscribe(topic, "g", () => undefined);
  await subscription[Symbol.asyncDispose]();
  expect((await groupStatus(topic))?.members).toBe(0);
  await bus[Symbol.asyncDispose]();
  expect(bus.state).toBe("closed");
});
