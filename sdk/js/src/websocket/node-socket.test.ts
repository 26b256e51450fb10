import { createHash } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket as TcpSocket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openOnNode } from "./node-socket.js";
import type { Socket } from "./socket.js";

let server: Server;
let peers: TcpSocket[];

beforeEach(async () => {
  peers = [];
  server = createServer((peer) => {
    peers.push(peer);
    peer.on("error", () => undefined);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});

afterEach(async () => {
  for (const peer of peers) peer.destroy();
  server.close();
  await once(server, "close");
});

/** Opens a socket to the server and keeps what it is told. */
function open() {
  const told: unknown[] = [];
  let wake = () => {};
  const tell = (what: unknown) => {
    told.push(what);
    wake();
  };
  const socket: Socket = openOnNode(`ws://127.0.0.1:${(server.address() as AddressInfo).port}/ws`, {
    opened: () => tell("opened"),
    received: (text) => tell(text),
    closed: (code, reason) => tell({ code, reason }),
  });
  const until = async (count: number) => {
    while (told.length < count) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return told;
  };
  return { socket, told, until };
}

/** The next bytes of a peer, at least so many. */
async function bytesOf(peer: TcpSocket, least = 1): Promise<Buffer> {
  let all = Buffer.alloc(0);
  while (all.length < least) {
    const piece = peer.read() as Buffer | null;
    if (piece) all = Buffer.concat([all, piece]);
    else await once(peer, "readable");
  }
  return all;
}

async function accepted(change: (answer: string[]) => string[] = (answer) => answer, behind = Buffer.alloc(0)) {
  const [peer] = (await once(server, "connection")) as [TcpSocket];
  const request = (await bytesOf(peer)).toString();
  const key = /sec-websocket-key: (\S+)/i.exec(request)?.[1];
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  const answer = change([
    "HTTP/1.1 101 Switching Protocols",
    "Upgrade: websocket",
    "Connection: Upgrade",
    `Sec-WebSocket-Accept: ${accept}`,
  ]);
  peer.write(Buffer.concat([Buffer.from(`${answer.join("\r\n")}\r\n\r\n`), behind]));
  return { peer, request };
}

/** Takes the mask off a short frame of the client. */
function unmask(frame: Buffer): { opcode: number; payload: Buffer } {
  const size = (frame[1] as number) & 0x7f;
  const mask = frame.subarray(2, 6);
  const payload = Buffer.from(frame.subarray(6, 6 + size).map((byte, at) => byte ^ (mask[at % 4] as number)));
  return { opcode: (frame[0] as number) & 15, payload };
}

test("it asks for a WebSocket and nothing more, and sends and receives texts", async () => {
  const { socket, until } = open();
  const { peer, request } = await accepted();
  expect(request).toMatch(/^GET \/ws HTTP\/1\.1\r\n/);
  expect(request).toMatch(/upgrade: websocket/i);
  expect(request).toMatch(/sec-websocket-version: 13/i);
  expect(request).not.toMatch(/sec-websocket-(extensions|protocol)|origin/i);
  await until(1);
  socket.send("žluť");
  expect(unmask(await bytesOf(peer, 12))).toEqual({ opcode: 1, payload: Buffer.from("žluť") });
  peer.write(Buffer.from([0x81, 2, 0x68, 0x69]));
  expect(await until(2)).toEqual(["opened", "hi"]);
});

test("what comes in one piece with the handshake is not lost", async () => {
  const { until } = open();
  await accepted(undefined, Buffer.from([0x81, 2, 0x68, 0x69]));
  expect(await until(2)).toEqual(["opened", "hi"]);
});

test("pings are answered with what they carry", async () => {
  const { until } = open();
  const { peer } = await accepted();
  await until(1);
  peer.write(Buffer.from([0x89, 3, 1, 2, 3]));
  expect(unmask(await bytesOf(peer, 9))).toEqual({ opcode: 10, payload: Buffer.from([1, 2, 3]) });
});

test("a close of the server is answered and told", async () => {
  const { until } = open();
  const { peer } = await accepted();
  await until(1);
  peer.write(Buffer.from([0x88, 5, 0x0f, 0xa8, 0x73, 0x6c, 0x6f]));
  expect(await until(2)).toEqual(["opened", { code: 4008, reason: "slo" }]);
  expect(unmask(await bytesOf(peer, 8))).toEqual({ opcode: 8, payload: Buffer.from([0x0f, 0xa8]) });
});

test("a close of the client waits for that of the server", async () => {
  const { socket, until, told } = open();
  const { peer } = await accepted();
  await until(1);
  socket.close(1000, "done");
  socket.send("too late");
  expect(unmask(await bytesOf(peer, 12))).toEqual({
    opcode: 8,
    payload: Buffer.from([0x03, 0xe8, ...Buffer.from("done")]),
  });
  expect(told).toEqual(["opened"]);
  peer.write(Buffer.from([0x88, 2, 0x03, 0xe8]));
  expect(await until(2)).toEqual(["opened", { code: 1000, reason: "" }]);
});

test("a connection that is cut is 1006", async () => {
  const { until } = open();
  const { peer } = await accepted();
  await until(1);
  peer.destroy();
  expect(await until(2)).toMatchObject(["opened", { code: 1006 }]);
});

test("a server that breaks the protocol is told so and left", async () => {
  const { until } = open();
  const { peer } = await accepted();
  await until(1);
  peer.write(Buffer.from([0x82, 1, 0]));
  expect(await until(2)).toMatchObject(["opened", { code: 1006, reason: expect.stringContaining("binary") }]);
  expect(unmask(await bytesOf(peer, 8)).payload.subarray(0, 2)).toEqual(Buffer.from([0x03, 0xeb]));
});

test.each([
  ["another key", (answer: string[]) => [...answer.slice(0, 3), "Sec-WebSocket-Accept: AAAA"]],
  ["no key", (answer: string[]) => answer.slice(0, 3)],
  ["another protocol", (answer: string[]) => answer.map((line) => line.replace("Upgrade: websocket", "Upgrade: h2c"))],
  ["an extension", (answer: string[]) => [...answer, "Sec-WebSocket-Extensions: permessage-deflate"]],
  ["a subprotocol", (answer: string[]) => [...answer, "Sec-WebSocket-Protocol: chat"]],
])("a handshake with %s is refused", async (_, change) => {
  const { until } = open();
  await accepted(change);
  expect(await until(1)).toMatchObject([{ code: 1006, reason: expect.stringContaining("handshake") }]);
});

test("an answer that is no WebSocket says so", async () => {
  const { until } = open();
  await accepted(() => ["HTTP/1.1 403 Forbidden", "Content-Length: 0"]);
  expect(await until(1)).toEqual([{ code: 1006, reason: "the server answered 403 Forbidden instead of a WebSocket" }]);
});

test("a server that is not there is 1006, with the reason", async () => {
  const told = await new Promise((resolve) => {
    openOnNode("ws://127.0.0.1:1/", {
      opened: () => resolve("opened"),
      received: () => undefined,
      closed: (code, reason) => resolve({ code, reason }),
    });
  });
  expect(told).toMatchObject({ code: 1006, reason: expect.stringContaining("ECONNREFUSED") });
});

test("closed before it is open, it is told once", async () => {
  const { socket, until, told } = open();
  const connection = once(server, "connection");
  socket.close(1000, "never mind");
  socket.close(1000, "never mind");
  expect(await until(1)).toEqual([{ code: 1006, reason: "closed before it was open" }]);
  await Promise.race([connection, new Promise((resolve) => setTimeout(resolve, 50))]);
  expect(told).toHaveLength(1);
});
