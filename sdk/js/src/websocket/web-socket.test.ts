import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openWith } from "./web-socket.js";

class FakeWebSocket {
  readonly sent: string[] = [];
  onopen?: () => void;
  onmessage?: (message: { data: unknown }) => void;
  onclose?: (close: { code: number; reason: string }) => void;
  onerror?: (error: { message?: string }) => void;

  send(text: string): void {
    this.sent.push(text);
  }
}

function open() {
  const platform = new FakeWebSocket();
  const urls: string[] = [];
  const events: unknown[] = [];
  const create = (url: string) => {
    urls.push(url);
    return platform as unknown as WebSocket;
  };
  const socket = openWith(create)("ws://bus.example/ws", {
    opened: () => events.push("opened"),
    received: (text) => events.push(text),
    closed: (code, reason) => events.push({ code, reason }),
  });
  return { socket, urls, events, platform };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("sends and receives texts, and ignores binary messages", () => {
  const { socket, urls, events, platform } = open();
  platform.onopen?.();
  platform.onmessage?.({ data: "hi" });
  platform.onmessage?.({ data: new ArrayBuffer(1) });
  socket.send("hello");
  expect([urls, platform.sent, events]).toEqual([["ws://bus.example/ws"], ["hello"], ["opened", "hi"]]);
});

test("a close after an error reports its code, once", () => {
  const { events, platform } = open();
  platform.onerror?.({});
  platform.onclose?.({ code: 4008, reason: "slow" });
  vi.runAllTimers();
  expect(events).toEqual([{ code: 4008, reason: "slow" }]);
});

test("a close without a reason reports the error before it", () => {
  const { events, platform } = open();
  platform.onerror?.({ message: "certificate has expired" });
  platform.onclose?.({ code: 1006, reason: "" });
  expect(events).toEqual([{ code: 1006, reason: "certificate has expired" }]);
});

test("an error without a close closes the socket", () => {
  const { events, platform } = open();
  platform.onerror?.({});
  expect(events).toEqual([]);
  vi.runAllTimers();
  platform.onmessage?.({ data: "too late" });
  expect(events).toEqual([{ code: 1006, reason: "the connection failed" }]);
});
