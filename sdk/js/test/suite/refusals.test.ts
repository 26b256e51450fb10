import { expect, test } from "vitest";
import { connect, isRetryable, type PublishOptions, RefusedError } from "../../src/index.js";
import { all, client, control, fresh, ownBus, until } from "./bus.js";

const tokens = (...list: { token: string; scopes: string[] }[]) => `auth.tokens=${JSON.stringify(list)}`;

test("waits for rate limits, and keeps the order with a window of one frame", async () => {
  const own = await ownBus("limits.connection.capacity=20", "limits.connection.refill_per_sec=200");
  const numbers = Array.from({ length: 100 }, (_, n) => n);
  const publishAll = async (window: number) => {
    const bus = await client(own.http, { window });
    const topic = fresh("orders");
    await Promise.all(numbers.map((n) => bus.publish(topic, n)));
    return (await all(bus.replay<number>(topic))).map(({ payload }) => payload);
  };
  expect(await publishAll(1)).toEqual(numbers);
  expect((await publishAll(1000)).sort((a, b) => a - b)).toEqual(numbers);
});

test("reports when to retry to a caller that does not want to wait", async () => {
  const own = await ownBus("limits.topic.capacity=1", "limits.topic.refill_per_sec=1");
  const bus = await client(own.http);
  const topic = fresh("orders");
  const publishMany = (options: PublishOptions) =>
    Promise.allSettled(Array.from({ length: 5 }, (_, n) => bus.publish(topic, n, options)));
  const errorsOf = (outcomes: PromiseSettledResult<unknown>[]) =>
    outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as RefusedError] : []));
  const [error] = errorsOf(await publishMany({ retry: false }));
  expect(error).toBeInstanceOf(RefusedError);
  expect(error).toMatchObject({ code: "rate_limited", message: "topic publish rate exceeded" });
  expect(error?.retryAfterMs).toBeGreaterThan(0);
  expect(isRetryable(error)).toBe(true);
  const [late] = errorsOf(await publishMany({ timeoutMs: 20 }));
  expect(late).toMatchObject({ code: "timeout" });
});

test("splits a batch that exceeds the capacity of a rate limit into smaller frames", async () => {
  const own = await ownBus("limits.connection.capacity=60", "limits.connection.refill_per_sec=1000");
  const bus = await client(own.http);
  const topic = fresh("orders");
  const events = Array.from({ length: 500 }, (_, n) => ({ payload: n }));
  const published = await bus.publishBatch(topic, events);
  expect(new Set(published.map(({ seq }) => seq)).size).toBe(500);
  const stored = (await all(bus.replay<number>(topic))).map(({ payload }) => payload);
  expect(stored.sort((a, b) => a - b)).toEqual(events.map(({ payload }) => payload));
});

test("a token determines what a client may do", async () => {
  const own = await ownBus(
    tokens(
      { token: "writer-token", scopes: ["publish:orders.*"] },
      { token: "reader-token", scopes: ["subscribe:orders.*"] },
    ),
  );
  const refused = (promise: Promise<unknown>, code: string) => expect(promise).rejects.toMatchObject({ code });
  const topic = fresh("orders");
  const guess = connect(own.http, { token: "guessed-token" });
  await refused(guess, "bad_token");
  expect(String(await guess.catch((error: unknown) => error))).not.toContain("guessed-token");

  const writer = await client(own.http, { token: () => Promise.resolve("writer-token") });
  await writer.publish(topic, 1);
  await refused(writer.publish("other", 1), "forbidden");
  await refused(
    writer.subscribe(topic, "g", () => undefined),
    "forbidden",
  );
  await refused(all(writer.replay(topic)), "forbidden");

  const reader = await client(own.http, { token: "reader-token" });
  await refused(reader.publish(topic, 1), "forbidden");
  expect(await all(reader.replay(topic))).toHaveLength(1);
  expect(await all(reader.export(topic))).toHaveLength(1);
  const got: unknown[] = [];
  const subscription = await reader.subscribe(topic, "g", ({ payload }) => void got.push(payload), {
    from: "earliest",
  });
  await until(() => got.length === 1);
  // The latest token determines the scopes.
  await reader.authenticate("writer-token");
  await reader.publish(topic, 2);
  await refused(reader.authenticate("guessed-token"), "bad_token");
  await subscription.stop();
});

test("without a required token nothing is allowed, and the client ends when the server closes it", async () => {
  const own = await ownBus(tokens({ token: "some-token", scopes: ["publish:**"] }), "gateway.auth_timeout_ms=300");
  const bus = await client(own.http);
  await expect(bus.publish("orders", 1)).rejects.toMatchObject({ code: "unauthorized" });
  await expect(all(bus.replay("orders"))).rejects.toMatchObject({ code: "unauthorized" });
  expect(await bus.ended).toMatchObject({ code: "unauthorized" });
  expect(bus.state).toBe("closed");
  await expect(bus.publish("orders", 1)).rejects.toMatchObject({ code: "unauthorized" });
});

/** A signed token that is valid for two seconds: the bus allows 5 s of clock skew. */
async function shortLivedToken(secret: string): Promise<string> {
  const bytes = (text: string) => new TextEncoder().encode(text);
  const base64url = (data: Uint8Array) =>
    btoa(String.fromCharCode(...data)).replace(/[+/=]/g, (sign) => ({ "+": "-", "/": "_" })[sign] ?? "");
  const claims = { scope: "publish:** subscribe:**", exp: Math.ceil(Date.now() / 1000) - 3 };
  const parts = [{ alg: "HS256", typ: "JWT" }, claims].map((part) => base64url(bytes(JSON.stringify(part))));
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", bytes(secret), algorithm, false, ["sign"]);
  const signature = await crypto.subtle.sign("HMAC", key, bytes(parts.join(".")));
  return [...parts, base64url(new Uint8Array(signature))].join(".");
}

test("renews an expired token with its function, and loses nothing", async () => {
  const secret = "a secret of the tests, with more than 32 bytes";
  const own = await ownBus(`auth.jwt.secret=${JSON.stringify(secret)}`);
  let asked = 0;
  const bus = await client(own.http, {
    token: () => {
      asked += 1;
      return shortLivedToken(secret);
    },
  });
  const topic = fresh("orders");
  const got = new Set<unknown>();
  await bus.subscribe(topic, "g", ({ payload }) => void got.add(payload), { from: "earliest" });
  let published = 0;
  while (asked < 3) {
    await bus.publish(topic, published);
    published += 1;
  }
  await until(() => got.size >= published);
  expect([...got]).toEqual(Array.from({ length: published }, (_, n) => n));
});

test("a subscription that a new token no longer allows ends on the next connection", async () => {
  const own = await ownBus(
    tokens({ token: "reader-token", scopes: ["subscribe:**"] }, { token: "writer-token", scopes: ["publish:**"] }),
  );
  let token = "reader-token";
  const bus = await client(own.http, { token: () => token });
  const subscription = await bus.subscribe("orders", "g", () => undefined);
  token = "writer-token";
  await control("killBus", own.name);
  await control("runBus", own.name);
  expect(await subscription.ended).toMatchObject({ code: "forbidden" });
  expect((await bus.publish("orders", 1)).seq).toBe(1);
});

test("HTTP refusals are the same errors", async () => {
  const bus = await client();
  const refused = (topic: string, options: object, code: string) =>
    expect(all(bus.replay(topic, options))).rejects.toMatchObject({ name: "RefusedError", code, isRetryable: false });
  await refused(fresh("nothing"), {}, "unknown_topic");
  await refused("Not A Topic", {}, "bad_topic");
  await refused("orders", { pageSize: 0 }, "bad_frame");
  const topic = fresh("orders");
  await bus.publish(topic, 1);
  await refused(topic, { afterId: "none" }, "unknown_id");
  await expect(all(bus.export(topic, { afterId: "none" }))).rejects.toMatchObject({ code: "unknown_id" });
});
