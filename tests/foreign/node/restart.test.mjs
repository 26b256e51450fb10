import assert from "node:assert/strict";
import { test } from "node:test";
import { Bus, within } from "./bus.mjs";
import { Server } from "./server.mjs";

test("after SIGKILL a group continues from its cursor and its attempt counts", async () => {
  const server = await Server.start("limits.enabled=false");
  try {
    const topic = "restart";
    let bus = await Bus.connect(server.url);
    const events = Array.from({ length: 20 }, (_, n) => ({ payload: n, opts: { id: `r-${n}` } }));
    await bus.ok({ op: "PUBLISH", topic, events });
    await bus.subscribe(topic, "g", { from: "earliest" });
    for (const _ of events) await bus.event();
    // Every fourth event is unacknowledged when the server is killed.
    const acked = events.filter((_, n) => n % 4 !== 1).map(({ opts }) => opts.id);
    await bus.ok({ op: "ACK", topic, group: "g", ids: acked });
    bus.socket.on("error", () => {});
    await server.kill();
    assert.equal((await within(bus.closed, "closing")).code, 1006);

    await server.run();
    bus = await Bus.connect(server.url);
    const again = await bus.publish(topic, "again", { id: "r-7" });
    assert.deepEqual([again.seq, again.duplicate], [8, true]);
    await bus.subscribe(topic, "g", { from: "latest" });
    for (const n of [1, 5, 9, 13, 17]) {
      const { event, ctx } = await bus.event();
      assert.deepEqual([event.payload, event.seq, ctx.attempt], [n, n + 1, 2]);
      await bus.ack(topic, "g", event.id);
    }
    assert.equal((await bus.publish(topic, "new")).seq, 21);
    const { event, ctx } = await bus.event();
    assert.deepEqual([event.payload, ctx.attempt], ["new", 1]);
    await bus.close();
  } finally {
    await server.remove();
  }
});
