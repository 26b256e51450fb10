import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import WebSocket from "ws";
import { fresh, url, withBus, within } from "./bus.mjs";

test("a fragmented message is one frame", withBus(async (bus) => {
  const topic = fresh("fragments");
  const text = JSON.stringify({ op: "PUBLISH", topic, payload: "in pieces: 🧩" });
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += 7) {
    const fin = at + 7 >= bytes.length;
    bus.socket.send(bytes.subarray(at, at + 7), { binary: false, fin });
    // Control frames may be interleaved with fragments.
    if (at === 21) bus.socket.ping("between");
  }
  assert.equal((await bus.answers.next("the answer")).seq, 1);
}));

test("a pong repeats the payload of its ping", withBus(async (bus) => {
  bus.socket.ping("are you there");
  const [data] = await within(once(bus.socket, "pong"), "a pong");
  assert.equal(String(data), "are you there");
}));

test("compression is offered and declined", withBus(async (_, connect) => {
  const bus = await connect(url, { perMessageDeflate: true });
  assert.equal(bus.socket.extensions, "");
  assert.equal((await bus.publish(fresh("plain"), "x".repeat(5000))).seq, 1);
}));

test("a binary frame is refused and leaves the connection open", withBus(async (bus) => {
  bus.socket.send(Buffer.from('{"op":"PUBLISH"}'));
  const answer = await bus.answers.next("the answer");
  assert.deepEqual([answer.op, answer.code], ["ERR", "bad_frame"]);
  await bus.publish(fresh("after"), 1);
}));

test("a frame of 1 MiB is accepted, and a larger one closes with 1009", withBus(async (bus) => {
  const topic = fresh("large");
  const frame = (length) => JSON.stringify({ op: "PUBLISH", topic, payload: "x".repeat(length) });
  const room = (1 << 20) - frame(0).length;
  assert.equal((await bus.ok(frame(room))).seq, 1);
  bus.send(frame(room + 1));
  const { code, reason } = await within(bus.closed, "the close");
  assert.deepEqual([code, reason], [1009, "frame exceeds the size limit"]);
  const refusal = await bus.answers.next("the refusal");
  assert.deepEqual([refusal.op, refusal.code], ["ERR", "payload_too_large"]);
}));

test("a close frame is answered", withBus(async (bus) => {
  bus.socket.close(1000, "done");
  assert.equal((await within(bus.closed, "the close")).code, 1000);
}));

test("/ws is the gateway as well; other paths and origins are refused", withBus(async (_, connect) => {
  await (await connect(new URL("ws", url).href)).publish(fresh("path"), 1);
  const handshakeStatus = async (address, options) => {
    const socket = new WebSocket(address, options);
    const [request, response] = await within(once(socket, "unexpected-response"), "an answer");
    request.destroy();
    return response.statusCode;
  };
  assert.equal(await handshakeStatus(new URL("other", url).href), 404);
  assert.equal(await handshakeStatus(url, { origin: "https://evil.example.com" }), 403);
}));
