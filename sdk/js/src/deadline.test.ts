import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Deadline } from "./deadline.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("aborts after the timeout unless it was released", () => {
  const [late, early] = [new Deadline({ timeoutMs: 50 }, "waiting"), new Deadline({ timeoutMs: 50 }, "waiting")];
  vi.advanceTimersByTime(49);
  early.release();
  expect(late.signal?.aborted).toBe(false);
  vi.advanceTimersByTime(1);
  expect(late.signal?.reason).toMatchObject({ code: "timeout", message: "waiting timed out after 50 ms" });
  expect(early.signal?.aborted).toBe(false);
});

test("aborts with the caller's signal and its reason", () => {
  const abort = new AbortController();
  const deadline = new Deadline({ signal: abort.signal, timeoutMs: Number.POSITIVE_INFINITY }, "waiting");
  abort.abort("enough");
  expect(deadline.signal?.reason).toBe("enough");
  expect(new Deadline({ signal: abort.signal }, "waiting").signal?.aborted).toBe(true);
});

test("needs no timer and no signal without a limit", () => {
  expect(new Deadline({ timeoutMs: Number.POSITIVE_INFINITY }, "waiting").signal).toBeUndefined();
  expect(new Deadline({}, "waiting").signal).toBeUndefined();
  expect(vi.getTimerCount()).toBe(0);
});
