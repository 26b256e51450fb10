// A connection to the server by npm's `ws`, with as little of our own as the tests can do with.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import WebSocket from "ws";

/** How long anything may take before a test fails rather than hangs. */
const PATIENCE_MS = 20_000;

/** The server that all tests share; its rate limits are off. */
export const url = process.env.PROMBUS_URL;

/** A name that no other test uses. */
export const fresh = (word) => `${word}.${randomUUID().slice(0, 8)}`;

export const within = (promise, what, ms = PATIENCE_MS) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
    // Who no longer waits is not kept from ending; a test that does has a connection open.
    timer.unref();
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

/** A queue whose readers wait. */
class Queue {
  #items = [];
  #readers = [];

  push(item) {
    const reader = this.#readers.shift();
    if (reader) reader(item);
    else this.#items.push(item);
  }

  get length() {
    return this.#items.length;
  }

  next(what) {
    if (this.#items.length > 0) return Promise.resolve(this.#items.shift());
    return within(new Promise((resolve) => this.#readers.push(resolve)), what);
  }
}

export class Bus {
  answers = new Queue();
  events = new Queue();

  static async connect(at = url, options = {}) {
    const bus = new Bus();
    bus.socket = new WebSocket(at, options);
    bus.closed = new Promise((resolve) => {
      bus.socket.on("close", (code, reason) => resolve({ code, reason: String(reason) }));
    });
    bus.socket.on("message", (data, isBinary) => {
      assert.equal(isBinary, false);
      const frame = JSON.parse(data);
      (frame.op === "EVENT" ? bus.events : bus.answers).push(frame);
    });
    const opened = new Promise((resolve, reject) => {
      bus.socket.on("open", resolve);
      bus.socket.on("error", reject);
    });
    await within(opened, "connecting");
    return bus;
  }

  send(frame) {
    this.socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  }

  /** The answer to `frame`: answers come in the order of the frames. */
  ask(frame) {
    this.send(frame);
    return this.answers.next(`the answer to ${JSON.stringify(frame).slice(0, 100)}`);
  }

  async ok(frame) {
    const answer = await this.ask(frame);
    assert.equal(answer.op, "OK", JSON.stringify(answer));
    return answer;
  }

  async refused(frame, code) {
    const answer = await this.ask(frame);
    assert.equal(answer.op, "ERR", JSON.stringify(answer));
    assert.equal(answer.code, code, JSON.stringify(answer));
    assert.ok(answer.msg.length > 0);
    return answer;
  }

  event() {
    return this.events.next("an event");
  }

  publish(topic, payload, opts) {
    return this.ok({ op: "PUBLISH", topic, payload, opts });
  }

  subscribe(topic, group, opts) {
    return this.ok({ op: "SUBSCRIBE", topic, group, opts });
  }

  ack(topic, group, id) {
    return this.ok({ op: "ACK", topic, group, id });
  }

  async close() {
    this.socket.close();
    await within(this.closed, "closing");
  }
}

/** A test with connections that are closed whatever comes of it. */
export const withBus = (test) => async () => {
  const open = [];
  const connect = async (...how) => {
    const bus = await Bus.connect(...how);
    open.push(bus);
    return bus;
  };
  try {
    await test(await connect(), connect);
  } finally {
    for (const bus of open) bus.socket.terminate();
  }
};
