// Says every so often that this program is alive.
//
//   node examples/heartbeat.js [NAME] [EVERY_MS]
//
// The bus is at PROMBUS_URL, or http://127.0.0.1:8083. Ctrl-c ends it, when what was sent is stored.
import { hostname } from "node:os";
import { connect } from "prombus";

const [name = hostname(), everyMs = "1000"] = process.argv.slice(2);
const bus = await connect(process.env.PROMBUS_URL ?? "http://127.0.0.1:8083", {
  onState: (state) => console.error(state),
});

let beats = 0;
const timer = setInterval(async () => {
  beats += 1;
  // A heartbeat that is late is worth nothing: it is not tried for longer than some beats take.
  const sent = bus.publish("heartbeat.received", { beats }, { key: name, timeoutMs: 5 * Number(everyMs) });
  await sent.then(
    ({ seq }) => console.log(`${name}: beat ${beats} is event ${seq}`),
    (error) => console.error(`${name}: beat ${beats} was not sent: ${error.message}`),
  );
}, Number(everyMs));

process.once("SIGINT", async () => {
  clearInterval(timer);
  await bus.close();
});
