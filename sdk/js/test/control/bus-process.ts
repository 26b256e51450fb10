import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** A bus process of the built binary. Its addresses stay the same across restarts. */
export class BusProcess {
  ws = "ws://127.0.0.1:0/";
  http = "http://127.0.0.1:0";
  readonly #folder: string;
  readonly #settings: string[];
  #process: ChildProcess | undefined;

  private constructor(folder: string, settings: string[]) {
    this.#folder = folder;
    this.#settings = settings;
  }

  static async start(settings: string[]): Promise<BusProcess> {
    const bus = new BusProcess(await mkdtemp(join(tmpdir(), "prombus-sdk-")), settings);
    await bus.run();
    return bus;
  }

  async run(): Promise<void> {
    const binary = process.env.PROMBUS_BINARY;
    if (!binary) throw new Error("set PROMBUS_BINARY to the path of the built binary, as `make sdk` does");
    const settings = ["log.level=error", "log.format=text", ...this.#settings];
    const addresses = ["--data", this.#folder, "--ws", new URL(this.ws).host, "--http", new URL(this.http).host];
    const child = spawn(binary, ["serve", ...addresses, ...settings.flatMap((setting) => ["--set", setting])], {
      stdio: ["ignore", "inherit", "pipe"],
    });
    this.#process = child;
    const lines = createInterface({ input: child.stderr });
    for await (const line of lines) {
      const [, name, address] = line.match(/^(WebSocket gateway|HTTP): (\S+)$/) ?? [];
      if (name === "HTTP") this.http = address as string;
      if (name === "WebSocket gateway") this.ws = address as string;
      if (line.startsWith("ready")) {
        child.stderr.resume();
        return;
      }
    }
    throw new Error("the bus exited before it was ready");
  }

  /** Ends the process, by default with SIGKILL, so that it cannot clean up. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#process;
    if (child === undefined) return;
    this.#process = undefined;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }

  async remove(): Promise<void> {
    await this.end();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
