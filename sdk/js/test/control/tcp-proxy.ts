import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket, connect as tcpConnect } from "node:net";

/** A TCP connection in between that does as it is told. */
export class TcpProxy {
  /** Connections that it made. */
  connections = 0;
  /** Answers that it lost. */
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

  /** The next `count` times that the server says something behind its handshake, that is lost with the connection. */
  loseAnswers(count: number): void {
    this.#answersToLose = count;
  }

  /** The next connections are cut when the server has sent so many bytes, one limit each. */
  limitBytes(limits: number[]): void {
    this.#byteLimits = limits;
  }

  /** Whether new connections are cut at once. */
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
    let left = this.#byteLimits.shift() ?? Number.POSITIVE_INFINITY;
    let shookHands = false;
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
    server.on("data", (piece) => {
      if (shookHands && this.#answersToLose > 0) {
        this.#answersToLose -= 1;
        this.lost += 1;
        cut();
        return;
      }
      shookHands ||= piece.includes("\r\n\r\n");
      client.write(piece.subarray(0, left));
      left -= piece.length;
      if (left <= 0) client.end(cut);
    });
  }
}
