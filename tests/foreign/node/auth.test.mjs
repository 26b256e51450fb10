import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { withBus, within } from "./bus.mjs";
import { Server } from "./server.mjs";

test("a token determines what a connection may do", async () => {
  const tokens = JSON.stringify([
    { token: "writer-token", scopes: ["publish:orders.*"] },
    { token: "reader-token", scopes: ["subscribe:orders.**"] },
  ]);
  const server = await Server.start(`auth.tokens=${tokens}`, "gateway.auth_timeout_ms=2000");
  try {
    await withBus(async (_, connect) => {
      const silent = await connect(server.url);
      const bus = await connect(server.url);
      const publish = { op: "PUBLISH", topic: "orders.created", payload: 1 };
      const subscribe = { op: "SUBSCRIBE", topic: "orders.created", group: "g" };
      await bus.refused(publish, "unauthorized");
      await bus.refused(subscribe, "unauthorized");
      const bad = await bus.refused({ op: "AUTH", token: "guessed-token" }, "bad_token");
      assert.equal(bad.msg.includes("guessed-token"), false);
      await bus.ok({ op: "AUTH", token: "writer-token" });
      assert.equal((await bus.ok(publish)).seq, 1);
      await bus.refused(subscribe, "forbidden");
      await bus.refused({ ...publish, topic: "orders.eu.created" }, "forbidden");
      await bus.refused({ ...publish, topic: "other" }, "forbidden");
      // The latest token determines the scopes.
      await bus.ok({ op: "AUTH", token: "reader-token" });
      await bus.refused(publish, "forbidden");
      await bus.ok({ ...subscribe, opts: { from: "earliest" } });
      const { event } = await bus.event();
      const ack = { op: "ACK", topic: "orders.created", group: "g", id: event.id };
      const forbidden = [{ topic: "orders.created", payload: 2 }];
      await bus.refused({ ...ack, publish: forbidden }, "forbidden");
      await bus.ok(ack);
      const { code, reason } = await within(silent.closed, "closing the silent connection");
      assert.deepEqual([code, reason], [4401, "not authenticated in time"]);
    })();
  } finally {
    await server.remove();
  }
});

/** A signed token that is valid for two seconds: the bus allows 5 s of clock skew. */
function shortLivedToken(secret) {
  const encoded = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");
  const claims = { scope: "consume:orders.*/billing", exp: Math.ceil(Date.now() / 1000) - 3 };
  const message = `${encoded({ alg: "HS256" })}.${encoded(claims)}`;
  return `${message}.${createHmac("sha256", secret).update(message).digest("base64url")}`;
}

test("a connection whose token has expired is closed", async () => {
  const secret = "a secret of the tests, with more than 32 bytes";
  const server = await Server.start(`auth.jwt.secret="${secret}"`, "gateway.expired_token_grace_ms=100");
  try {
    await withBus(async (_, connect) => {
      const bus = await connect(server.url);
      await bus.ok({ op: "AUTH", token: shortLivedToken(secret) });
      await bus.ok({ op: "SUBSCRIBE", topic: "orders.created", group: "billing" });
      await bus.refused({ op: "SUBSCRIBE", topic: "orders.created", group: "mail" }, "forbidden");
      const { code, reason } = await within(bus.closed, "closing the connection");
      assert.deepEqual([code, reason], [4401, "the token has expired"]);
    })();
  } finally {
    await server.remove();
  }
});

test("guesses are throttled, and who has logged in before is let in", async () => {
  const tokens = JSON.stringify([{ token: "right-token", scopes: ["publish:**"] }]);
  const server = await Server.start(`auth.tokens=${tokens}`, "limits.logins.capacity=3");
  try {
    await withBus(async (_, connect) => {
      const right = { op: "AUTH", token: "right-token" };
      await (await connect(server.url)).ok(right);
      const guesser = await connect(server.url);
      let answer;
      do {
        answer = await guesser.ask({ op: "AUTH", token: "guessed-token" });
      } while (answer.code === "bad_token");
      assert.equal(answer.code, "rate_limited");
      assert.ok(answer.retry_after_ms >= 1 && answer.retry_after_ms <= 1000, JSON.stringify(answer));
      await (await connect(server.url)).ok(right);
    })();
  } finally {
    await server.remove();
  }
});
