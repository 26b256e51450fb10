import assert from "node:assert/strict";
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
