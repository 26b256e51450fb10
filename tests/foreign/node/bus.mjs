// A thin wrapper around a connection of npm's `ws`.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import WebSocket from "ws";

/** After this time a test fails instead of hanging. */
const TIMEOUT_MS = 20_000;

/** The address of the server that all tests share, without rate limits. */
export const url = process.env.PROMBUS_URL;

/** Returns a name that no other test uses. */
export const fresh = (word) => `${word}.${randomUUID().slice(0, 8)}`;

/** Rejects if `promise` does not settle in time. */
export const within = (promise, what, ms = TIMEOUT_MS) => {
  let timer;
  const timeout = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: timed out after ${ms} ms`)), ms);
    // An open connection keeps a waiting test alive; the timer must not keep the process alive after it.
    timer.unref();
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
};

/** A queue whose readers wait for the next item. */
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

  /** Sends a frame and returns its answer; the server answers in order. */
  ask(frame) {
    this.send(frame);
    return this.answers.next(`an answer to ${JSON.stringify(frame).slice(0, 100)}`);
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

/** Runs a test with connections that are closed at its end. */
export const withBus = (test) => async () => {
  const open = [];
  const connect = async (...args) => {
    const bus = await Bus.connect(...args);
    open.push(bus);
    return bus;
  };
  try {
    await test(await connect(), connect);
  } finally {
    for (const bus of open) bus.socket.terminate();
  }
};
