import { expect, test } from "vitest";
import { Backoff } from "./backoff.js";

test("the longest delay doubles up to its maximum, and jitter takes any part of it", () => {
  const longest = new Backoff({ minMs: 100, maxMs: 1000 }, () => 1);
  expect([1, 2, 3, 4, 5, 50, 5000].map((failures) => longest.delayMs(failures))).toEqual([
    100, 200, 400, 800, 1000, 1000, 1000,
  ]);
  expect(new Backoff({ minMs: 100, maxMs: 1000 }, () => 0.25).delayMs(2)).toBe(50);
  expect(new Backoff({ minMs: 100, maxMs: 1000 }, () => 0).delayMs(9)).toBe(0);
});
