import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { ownBus } from "../suite/bus.js";
import { run } from "./run-node.js";

const PROGRAM = `
  import { connect } from "prombus";
  const bus = await connect(process.env.PROMBUS_URL, { connectTimeoutMs: 2000 });
  const got = new Promise((resolve) => bus.subscribe("orders", "g", resolve, { from: "earliest" }));
  await bus.publish("orders", "hello");
  console.log("got", (await got).payload);
  for await (const { payload } of bus.replay("orders")) console.log("read", payload);
  await bus.close();
  console.log("done");
`;

/** Creates a self-signed certificate for 127.0.0.1. */
async function selfSignedCertificate() {
  const folder = await mkdtemp(join(tmpdir(), "prombus-sdk-tls-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1";
  const names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert];
  await promisify(execFile)("openssl", [...request.split(" "), ...names]);
  return { key, cert };
}

test("uses wss and https with a trusted certificate, and rejects an untrusted one", async () => {
  const { key, cert } = await selfSignedCertificate();
  const own = await ownBus(`server.tls.key_file=${key}`, `server.tls.cert_file=${cert}`);
  const PROMBUS_URL = own.http.replace("http:", "https:");
  const trusting = run(["--input-type=module", "--eval", PROGRAM], { PROMBUS_URL, NODE_EXTRA_CA_CERTS: cert });
  await trusting.prints("got hello\nread hello\ndone\n");
  const wary = run(["--input-type=module", "--eval", PROGRAM], { PROMBUS_URL });
  expect(await wary.exited).not.toBe(0);
  expect(wary.output.err).toContain("certificate");
});
