import { expect, test } from "vitest";
import { MemoryDedupe } from "./dedupe.js";

test("a mark expires after its time-to-live, and marking again renews it", () => {
  let now = 0;
  const store = new MemoryDedupe(10, () => now);
  expect(store.seen("t", "g", "a")).toBe(false);
  store.mark("t", "g", "a", 100);
  now = 99;
  expect(store.seen("t", "g", "a")).toBe(true);
  store.mark("t", "g", "a", 100);
  now = 198;
  expect(store.seen("t", "g", "a")).toBe(true);
  now = 199;
  expect(store.seen("t", "g", "a")).toBe(false);
  expect(store.size).toBe(0);
});

test("marks are kept per topic, group and id", () => {
  const store = new MemoryDedupe();
  store.mark("t", "g", "a");
  expect([store.seen("t", "h", "a"), store.seen("u", "g", "a"), store.seen("t", "g", "b")]).toEqual([
    false,
    false,
    false,
  ]);
});

test("drops the oldest mark beyond its capacity", () => {
  const store = new MemoryDedupe(2, () => 0);
  for (const id of ["a", "b", "a", "c"]) store.mark("t", "g", id, 100);
  expect(["a", "b", "c"].map((id) => store.seen("t", "g", id))).toEqual([true, false, true]);
});
