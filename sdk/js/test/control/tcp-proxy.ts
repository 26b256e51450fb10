import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket, connect as tcpConnect } from "node:net";

/** A TCP proxy that loses answers and connections on demand. */
export class TcpProxy {
  /** The number of connections to the target. */
  connections = 0;
  /** The number of lost answers. */
  lost = 0;
  readonly #target: URL;
  readonly #server: Server;
  readonly #open = new Set<() => void>();
  #answersToLose = 0;
  #byteLimits: number[] = [];
  #refusing = false;

  private constructor(target: string) {
    this.#target = new URL(target);
    this.#server = createServer((client) => this.#connect(client));
  }

  static async start(target: string): Promise<TcpProxy> {
    const proxy = new TcpProxy(target);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    const url = new URL(this.#target);
    url.port = String((this.#server.address() as AddressInfo).port);
    return url.href;
  }

  /** Cuts all connections. */
  cut(): void {
    for (const cut of this.#open) cut();
  }

  /** Drops the next `count` chunks that the server sends after its handshake, and cuts their connections. */
  loseAnswers(count: number): void {
    this.#answersToLose = count;
  }

  /** Cuts each of the next connections after the server has sent the given number of bytes. */
  limitBytes(limits: number[]): void {
    this.#byteLimits = limits;
  }

  /** Cuts new connections at once, or accepts them again. */
  refuse(refusing: boolean): void {
    this.#refusing = refusing;
  }

  async remove(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #connect(client: Socket): void {
    if (this.#refusing) {
      client.destroy();
      return;
    }
    this.connections += 1;
    let bytesLeft = this.#byteLimits.shift() ?? Number.POSITIVE_INFINITY;
    let handshakeDone = false;
    const server = tcpConnect(Number(this.#target.port), this.#target.hostname);
    const cut = () => {
      client.destroy();
      server.destroy();
      this.#open.delete(cut);
    };
    this.#open.add(cut);
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on("error", cut);
      socket.on("close", cut);
    }
    client.pipe(server);
    server.on("data", (chunk) => {
      if (handshakeDone && this.#answersToLose > 0) {
        this.#answersToLose -= 1;
        this.lost += 1;
        cut();
        return;
      }
      handshakeDone ||= chunk.includes("\r\n\r\n");
      client.write(chunk.subarray(0, bytesLeft));
      bytesLeft -= chunk.length;
      if (bytesLeft <= 0) client.end(cut);
    });
  }
}
