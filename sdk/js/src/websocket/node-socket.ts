// A WebSocket client for Node 20, which has none: RFC 6455, text only, no extensions. Newer Nodes and browsers use
// their own and never load this file.
import { createHash, randomBytes } from "node:crypto";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import { OPCODE, writeClose, writeFrame } from "./frame-format.js";
import { FrameReader, WebSocketViolation } from "./frame-reader.js";
import type { OpenSocket, Socket, SocketListener } from "./socket.js";

const ACCEPT_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const HANDSHAKE_MS = 10_000;
const CLOSING_MS = 5_000;
/** Above what the bus ever sends: the largest frame that can be configured, and what is around its payload. */
const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;

/** Opens a socket over `node:http` or `node:https`. */
export const openOnNode: OpenSocket = (url, listener) => new NodeSocket(url, listener);

class NodeSocket implements Socket {
  readonly #listener: SocketListener;
  readonly #key = randomBytes(16).toString("base64");
  readonly #reader = new FrameReader(MAX_MESSAGE_BYTES);
  readonly #handshake: ClientRequest;
  #stream: Duplex | undefined;
  #closing: { code: number; reason: string } | undefined;
  #closed = false;
  #gathers = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(url: string, listener: SocketListener) {
    this.#listener = listener;
    const target = new URL(url);
    const secure = target.protocol === "wss:";
    target.protocol = secure ? "https:" : "http:";
    this.#handshake = (secure ? httpsRequest : httpRequest)(target, {
      // A connection of its own: what speaks WebSocket is never given back to a pool.
      agent: false,
      headers: {
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": this.#key,
      },
    });
    this.#timer = setTimeout(() => this.#fail(`no handshake in ${HANDSHAKE_MS} ms`), HANDSHAKE_MS);
    this.#handshake.on("upgrade", (response, stream, head) => this.#upgraded(response, stream, head));
    this.#handshake.on("response", (response) => {
      response.resume();
      this.#fail(`the server answered ${response.statusCode} ${response.statusMessage} instead of a WebSocket`);
    });
    this.#handshake.on("error", (error) => this.#fail(error.message));
    this.#handshake.end();
  }

  send(text: string): void {
    if (this.#stream === undefined || this.#closing || this.#closed) return;
    this.#write(OPCODE.text, Buffer.from(text, "utf8"));
  }

  close(code: number, reason: string): void {
    if (this.#stream === undefined) {
      this.#fail("closed before it was open");
      return;
    }
    if (this.#closing || this.#closed) return;
    this.#closing = { code, reason };
    this.#write(OPCODE.close, writeClose(code, reason));
    this.#timer = setTimeout(() => this.#finish(1006, "the server did not close in time"), CLOSING_MS);
  }

  #upgraded(response: IncomingMessage, stream: Duplex, head: Buffer): void {
    if (this.#closed) {
      stream.destroy();
      return;
    }
    this.#stream = stream;
    stream.on("error", (error) => this.#finish(1006, error.message));
    stream.on("close", () => this.#finish(1006, ""));
    stream.on("end", () => this.#finish(1006, ""));
    const accept = createHash("sha1")
      .update(this.#key + ACCEPT_SUFFIX)
      .digest("base64");
    const { headers } = response;
    const isWebSocket = headers.upgrade?.toLowerCase() === "websocket" && headers["sec-websocket-accept"] === accept;
    if (!isWebSocket || headers["sec-websocket-extensions"] || headers["sec-websocket-protocol"]) {
      this.#fail("the answer to the handshake is not what was asked for");
      return;
    }
    clearTimeout(this.#timer);
    if ("setNoDelay" in stream) (stream as import("node:net").Socket).setNoDelay(true);
    this.#listener.opened();
    stream.on("data", (piece: Buffer) => this.#read(piece));
    if (head.length > 0) this.#read(head);
  }

  #read(piece: Buffer): void {
    if (this.#closed) return;
    try {
      for (const incoming of this.#reader.read(piece)) {
        if (this.#closed) return;
        switch (incoming.kind) {
          case "text":
            // What comes while we close is of no interest any more.
            if (!this.#closing) this.#listener.received(incoming.text);
            break;
          case "ping":
            if (!this.#closing) this.#write(OPCODE.pong, incoming.payload);
            break;
          case "close":
            if (!this.#closing) this.#write(OPCODE.close, writeClose(incoming.code, ""));
            this.#finish(incoming.code, incoming.reason);
            return;
        }
      }
    } catch (error) {
      if (!(error instanceof WebSocketViolation)) throw error;
      if (!this.#closing) this.#write(OPCODE.close, writeClose(error.closeCode, error.message));
      this.#finish(1006, error.message);
    }
  }

  /** Frames of one moment leave in one write. */
  #write(opcode: number, payload: Uint8Array): void {
    const stream = this.#stream;
    if (stream === undefined) return;
    if (!this.#gathers) {
      this.#gathers = true;
      stream.cork();
      process.nextTick(() => {
        this.#gathers = false;
        stream.uncork();
      });
    }
    stream.write(writeFrame(opcode, payload, randomBytes(4)));
  }

  #fail(reason: string): void {
    this.#handshake.destroy();
    this.#stream?.destroy();
    this.#finish(1006, reason);
  }

  #finish(code: number, reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    const stream = this.#stream;
    if (stream) {
      // The close frame still goes out; a server that does not take it is not waited for.
      stream.end();
      setTimeout(() => stream.destroy(), CLOSING_MS).unref();
      stream.resume();
    }
    this.#listener.closed(code, reason);
  }
}
