// Reports which programs are up, based on the heartbeats that examples/heartbeat.js publishes.
//
//   node examples/monitor.js [TIMEOUT_MS]
//
// Connects to PROMBUS_URL, by default http://127.0.0.1:8083. Ctrl-C stops it.
import { connect } from "prombus";

const timeoutMs = Number(process.argv[2] ?? 3000);
const bus = await connect(process.env.PROMBUS_URL ?? "http://127.0.0.1:8083");
/** @type {Map<string, number>} The time of each program's last heartbeat. */
const lastSeen = new Map();

/** @type {import("prombus").Handler<{ count: number }>} */
const recordHeartbeat = ({ key = "unknown", payload }) => {
  if (!lastSeen.has(key)) console.log(`${key} is up, heartbeat ${payload.count}`);
  lastSeen.set(key, Date.now());
};
await bus.subscribe("heartbeat.received", "monitor", recordHeartbeat);

const timer = setInterval(() => {
  for (const [key, at] of lastSeen) {
    if (Date.now() - at <= timeoutMs) continue;
    lastSeen.delete(key);
    console.log(`${key} is down`);
  }
}, timeoutMs / 4);

process.once("SIGINT", async () => {
  clearInterval(timer);
  await bus.close();
});
