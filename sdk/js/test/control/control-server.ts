import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { BusProcess } from "./bus-process.js";
import { TcpProxy } from "./tcp-proxy.js";

/** Does for tests in a browser what they cannot do themselves; tests in Node ask it the same way. */
export class ControlServer {
  readonly #things = new Map<string, BusProcess | TcpProxy>();
  readonly #server: Server = createServer(async (request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    try {
      const { call, args } = JSON.parse(await bodyOf(request)) as { call: keyof ControlServer["calls"]; args: never[] };
      const answer = await (this.calls[call] as (...args: never[]) => unknown)(...args);
      response.end(JSON.stringify(answer ?? null));
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error));
    }
  });
  #names = 0;
  #shared: Promise<{ name: string; ws: string; http: string }> | undefined;

  /** What can be asked for. */
  readonly calls = {
    startBus: async (settings: string[]) => {
      const bus = await BusProcess.start(settings);
      return { name: this.#keep(bus), ws: bus.ws, http: bus.http };
    },
    /** The same one for all who ask. */
    sharedBus: (settings: string[]) => {
      this.#shared ??= this.calls.startBus(settings);
      return this.#shared;
    },
    killBus: (name: string) => this.#bus(name).end(),
    stopBus: (name: string) => this.#bus(name).end("SIGTERM"),
    runBus: (name: string) => this.#bus(name).run(),
    startProxy: async (target: string) => {
      const proxy = await TcpProxy.start(target);
      return { name: this.#keep(proxy), url: proxy.url };
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
      await this.#things.get(name)?.remove();
      this.#things.delete(name);
    },
  };

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#things.values()].map((thing) => thing.remove()));
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #keep(thing: BusProcess | TcpProxy): string {
    this.#names += 1;
    const name = String(this.#names);
    this.#things.set(name, thing);
    return name;
  }

  #bus(name: string): BusProcess {
    const bus = this.#things.get(name);
    if (bus instanceof BusProcess) return bus;
    throw new Error(`no bus is called ${name}`);
  }

  #proxy(name: string): TcpProxy {
    const proxy = this.#things.get(name);
    if (proxy instanceof TcpProxy) return proxy;
    throw new Error(`no proxy is called ${name}`);
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = "";
  for await (const piece of request.setEncoding("utf8")) body += piece;
  return body;
}
