// A server process of the built binary.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { within } from "./bus.mjs";

export class Server {
  folder = mkdtempSync(join(tmpdir(), "prombus-node-"));

  static async start(...settings) {
    const server = new Server();
    server.settings = settings.flatMap((setting) => ["--set", setting]);
    await server.run();
    return server;
  }

  async run() {
    const args = ["serve", "--data", this.folder, "--ws", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    args.push("--set", "log.format=text");
    this.process = spawn(process.env.PROMBUS_BINARY, [...args, ...this.settings], {
      stdio: ["ignore", "inherit", "pipe"],
    });
    this.exited = new Promise((resolve) => this.process.on("exit", resolve));
    const ready = (async () => {
      for await (const line of createInterface({ input: this.process.stderr })) {
        const address = line.match(/^WebSocket gateway: (\S+)$/);
        if (address) this.url = address[1];
        if (line.startsWith("ready")) return;
      }
      throw new Error("the server exited before it was ready");
    })();
    await within(ready, "starting a server");
    this.process.stderr.resume();
  }

  /** Ends the server with SIGKILL, so that it cannot clean up. */
  async kill() {
    this.process.kill("SIGKILL");
    await within(this.exited, "killing a server");
  }

  async remove() {
    await this.kill();
    rmSync(this.folder, { recursive: true });
  }
}
