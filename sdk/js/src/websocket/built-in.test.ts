import { afterEach, expect, test, vi } from "vitest";
import { openBuiltIn } from "./built-in.js";

class Platform {
  static made: Platform;
  readonly sent: string[] = [];
  onopen?: () => void;
  onmessage?: (message: { data: unknown }) => void;
  onclose?: (close: { code: number; reason: string }) => void;
  onerror?: () => void;

  constructor(readonly url: string) {
    Platform.made = this;
  }

  send(text: string): void {
    this.sent.push(text);
  }
}

function opened() {
  vi.stubGlobal("WebSocket", Platform);
  vi.useFakeTimers();
  const told: unknown[] = [];
  const socket = openBuiltIn("ws://bus.example/ws", {
    opened: () => told.push("opened"),
    received: (text) => told.push(text),
    closed: (code, reason) => told.push({ code, reason }),
  });
  return { socket, told, platform: Platform.made };
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("texts go both ways, and what is no text is passed over", () => {
  const { socket, told, platform } = opened();
  platform.onopen?.();
  platform.onmessage?.({ data: "hi" });
  platform.onmessage?.({ data: new ArrayBuffer(1) });
  socket.send("hello");
  expect([platform.url, platform.sent, told]).toEqual(["ws://bus.example/ws", ["hello"], ["opened", "hi"]]);
});

test("a close that follows an error says the code, and is told once", () => {
  const { told, platform } = opened();
  platform.onerror?.();
  platform.onclose?.({ code: 4008, reason: "slow" });
  vi.runAllTimers();
  expect(told).toEqual([{ code: 4008, reason: "slow" }]);
});

test("an error that no close follows is the end, too", () => {
  const { told, platform } = opened();
  platform.onerror?.();
  expect(told).toEqual([]);
  vi.runAllTimers();
  platform.onmessage?.({ data: "too late" });
  expect(told).toEqual([{ code: 1006, reason: "the connection failed" }]);
});
