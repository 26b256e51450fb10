// Shows who is alive, from the heartbeats that examples/heartbeat.js publishes, and who stopped being so.
//
//   node examples/monitor.js [PATIENCE_MS]
//
// The bus is at PROMBUS_URL, or http://127.0.0.1:8083. Ctrl-c ends it.
import { connect } from "prombus";

const patienceMs = Number(process.argv[2] ?? 3000);
const bus = await connect(process.env.PROMBUS_URL ?? "http://127.0.0.1:8083");
/** @type {Map<string, number>} When each was heard last. */
const heard = new Map();

/** @type {import("prombus").Handler<{ beats: number }>} */
const listen = ({ key = "somebody", payload }) => {
  if (!heard.has(key)) console.log(`${key} is there, with beat ${payload.beats}`);
  heard.set(key, Date.now());
};
await bus.subscribe("heartbeat.received", "monitor", listen);

const timer = setInterval(() => {
  for (const [key, at] of heard) {
    if (Date.now() - at <= patienceMs) continue;
    heard.delete(key);
    console.log(`${key} is gone`);
  }
}, patienceMs / 4);

process.once("SIGINT", async () => {
  clearInterval(timer);
  await bus.close();
});
