import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type WebSocket as Peer, WebSocketServer } from "ws";
import { findOpenSocket } from "./open-socket.js";

let server: Server;
let gateway: WebSocketServer;

beforeEach(async () => {
  server = createServer();
  gateway = new WebSocketServer({ server, path: "/ws", perMessageDeflate: true, maxPayload: 64 * 1024 * 1024 });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});

afterEach(async () => {
  for (const peer of gateway.clients) peer.terminate();
  server.close();
  await once(server, "close");
});

/** Opens a socket to the server and records its events. */
async function open(path = "/ws") {
  const events: unknown[] = [];
  const openSocket = await findOpenSocket();
  const socket = openSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, {
    opened: () => events.push("opened"),
    received: (text) => events.push(text),
    closed: (code, reason) => events.push({ code, reason }),
  });
  const seen = (count: number) => vi.waitFor(() => expect(events.length).toBeGreaterThanOrEqual(count), 10_000);
  return { socket, events, seen };
}

async function connected() {
  const connection = once(gateway, "connection") as Promise<[Peer, IncomingMessage]>;
  const opened = await open();
  const [peer, request] = await connection;
  await opened.seen(1);
  return { ...opened, peer, request };
}

test("asks for no extension and sends no origin", async () => {
  const { request } = await connected();
  expect(request.headers["sec-websocket-extensions"]).toBeUndefined();
  expect(request.headers.origin).toBeUndefined();
});

test("sends and receives texts", async () => {
  const { socket, peer, events, seen } = await connected();
  const received = once(peer, "message");
  socket.send("žluť");
  expect(String((await received)[0])).toBe("žluť");
  peer.send("hi");
  await seen(2);
  expect(events).toEqual(["opened", "hi"]);
});

test("receives what the server sends together with its handshake", async () => {
  gateway.on("connection", (peer) => peer.send("early"));
  const { events, seen } = await open();
  await seen(2);
  expect(events).toEqual(["opened", "early"]);
});

test("sends and receives large messages", async () => {
  const { socket, peer, events, seen } = await connected();
  const large = "ž".repeat(10 * 1024 * 1024);
  const received = once(peer, "message");
  socket.send(large);
  expect(String((await received)[0]) === large).toBe(true);
  peer.send(large);
  await seen(2);
  expect(events[1] === large).toBe(true);
});

test("leaves a server that sends a message above the limit", async () => {
  const { peer, events, seen } = await connected();
  peer.on("error", () => undefined);
  peer.send("x".repeat(33 * 1024 * 1024));
  await seen(2);
  expect(events).toMatchObject(["opened", { code: 1006, reason: expect.stringContaining("Max payload") }]);
});

test("answers pings", async () => {
  const { peer } = await connected();
  const pong = once(peer, "pong");
  peer.ping("are you there");
  expect(String((await pong)[0])).toBe("are you there");
});

test("reports the server's close code and reason", async () => {
  const { peer, events, seen } = await connected();
  peer.close(4008, "slow consumer");
  await seen(2);
  expect(events).toEqual(["opened", { code: 4008, reason: "slow consumer" }]);
});

test("closes with the given code, and sends nothing afterwards", async () => {
  const { socket, peer, events, seen } = await connected();
  const messages: unknown[] = [];
  peer.on("message", (data) => messages.push(data));
  const closed = once(peer, "close");
  socket.close(1000, "done");
  socket.send("too late");
  const [code, reason] = await closed;
  expect([code, String(reason), messages]).toEqual([1000, "done", []]);
  await seen(2);
  expect(events).toMatchObject(["opened", { code: 1000 }]);
});

test("a cut connection is reported as 1006", async () => {
  const { peer, events, seen } = await connected();
  peer.terminate();
  await seen(2);
  expect(events).toMatchObject(["opened", { code: 1006 }]);
});

test("a refused handshake is reported with its HTTP status", async () => {
  const { events, seen } = await open("/other");
  await seen(1);
  expect(events).toMatchObject([{ code: 1006, reason: expect.stringContaining("400") }]);
});

test("an unreachable server is reported with the error of the system", async () => {
  const openSocket = await findOpenSocket();
  const closed = await new Promise((resolve) => {
    openSocket("ws://127.0.0.1:1/", {
      opened: () => resolve("opened"),
      received: () => undefined,
      closed: (code, reason) => resolve({ code, reason }),
    });
  });
  expect(closed).toMatchObject({ code: 1006, reason: expect.stringContaining("ECONNREFUSED") });
});

test("a socket that is closed before it opened reports that once", async () => {
  const { socket, events, seen } = await open();
  socket.close(1000, "never mind");
  socket.close(1000, "never mind");
  await seen(1);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(events).toMatchObject([{ code: 1006 }]);
});
