import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { BusProcess } from "./bus-process.js";
import { TcpProxy } from "./tcp-proxy.js";

/** Starts, kills and proxies buses for tests that run in a browser. Tests in Node use it too. */
export class ControlServer {
  readonly #resources = new Map<string, BusProcess | TcpProxy>();
  readonly #server: Server = createServer(async (request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    try {
      const { call, args } = JSON.parse(await readBody(request)) as {
        call: keyof ControlServer["calls"];
        args: never[];
      };
      const answer = await (this.calls[call] as (...args: never[]) => unknown)(...args);
      response.end(JSON.stringify(answer ?? null));
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error));
    }
  });
  #lastName = 0;
  #shared: Promise<{ name: string; ws: string; http: string }> | undefined;

  /** The calls that tests can make. */
  readonly calls = {
    startBus: async (settings: string[]) => {
      const bus = await BusProcess.start(settings);
      return { name: this.#register(bus), ws: bus.ws, http: bus.http };
    },
    /** Starts a bus on the first call and returns the same one afterwards. */
    sharedBus: (settings: string[]) => {
      this.#shared ??= this.calls.startBus(settings);
      return this.#shared;
    },
    killBus: (name: string) => this.#bus(name).end(),
    stopBus: (name: string) => this.#bus(name).end("SIGTERM"),
    runBus: (name: string) => this.#bus(name).run(),
    startProxy: async (target: string) => {
      const proxy = await TcpProxy.start(target);
      return { name: this.#register(proxy), url: proxy.url };
    },
    cut: (name: string) => this.#proxy(name).cut(),
    loseAnswers: (name: string, count: number) => this.#proxy(name).loseAnswers(count),
    limitBytes: (name: string, limits: number[]) => this.#proxy(name).limitBytes(limits),
    refuse: (name: string, refusing: boolean) => this.#proxy(name).refuse(refusing),
    countsOf: (name: string) => {
      const { connections, lost } = this.#proxy(name);
      return { connections, lost };
    },
    remove: async (name: string) => {
      await this.#resources.get(name)?.remove();
      this.#resources.delete(name);
    },
  };

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#resources.values()].map((resource) => resource.remove()));
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #register(resource: BusProcess | TcpProxy): string {
    this.#lastName += 1;
    const name = String(this.#lastName);
    this.#resources.set(name, resource);
    return name;
  }

  #bus(name: string): BusProcess {
    const bus = this.#resources.get(name);
    if (bus instanceof BusProcess) return bus;
    throw new Error(`there is no bus ${name}`);
  }

  #proxy(name: string): TcpProxy {
    const proxy = this.#resources.get(name);
    if (proxy instanceof TcpProxy) return proxy;
    throw new Error(`there is no proxy ${name}`);
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  let body = "";
  for await (const chunk of request.setEncoding("utf8")) body += chunk;
  return body;
}
