// Publishes a heartbeat at regular intervals.
//
//   node examples/heartbeat.js [NAME] [INTERVAL_MS]
//
// Connects to PROMBUS_URL, by default http://127.0.0.1:8083. Ctrl-C stops it after the last heartbeat is stored.
import { hostname } from "node:os";
import { connect } from "prombus";

const [name = hostname(), intervalMs = "1000"] = process.argv.slice(2);
const bus = await connect(process.env.PROMBUS_URL ?? "http://127.0.0.1:8083", {
  onState: (state) => console.error(state),
});

let sent = 0;
const timer = setInterval(async () => {
  sent += 1;
  const count = sent;
  // A late heartbeat is worthless, so give up after a few intervals.
  const published = bus.publish("heartbeat.received", { count }, { key: name, timeoutMs: 5 * Number(intervalMs) });
  await published.then(
    ({ seq }) => console.log(`${name}: stored heartbeat ${count} as event ${seq}`),
    (error) => console.error(`${name}: cannot publish heartbeat ${count}: ${error.message}`),
  );
}, Number(intervalMs));

process.once("SIGINT", async () => {
  clearInterval(timer);
  await bus.close();
});
