import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** A bus of the tests' own, from the built binary. Its addresses stay the same when it is started again. */
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
    if (!binary) throw new Error("PROMBUS_BINARY has to name the built binary; `make sdk` does so");
    const settings = ["log.level=error", ...this.#settings];
    const places = ["--data", this.#folder, "--ws", new URL(this.ws).host, "--http", new URL(this.http).host];
    const child = spawn(binary, ["serve", ...places, ...settings.flatMap((setting) => ["--set", setting])], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#process = child;
    const lines = createInterface({ input: child.stdout });
    for await (const line of lines) {
      const [, what, where] = line.match(/^(WebSocket gateway|HTTP): (\S+)$/) ?? [];
      if (what === "HTTP") this.http = where as string;
      if (what === "WebSocket gateway") this.ws = where as string;
      if (line.startsWith("ready")) {
        child.stdout.resume();
        return;
      }
    }
    throw new Error("the bus ended before it was ready");
  }

  /** SIGKILL by default: it has no chance to do anything about it. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#process;
    if (child === undefined) return;
    this.#process = undefined;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  async remove(): Promise<void> {
    await this.end();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
