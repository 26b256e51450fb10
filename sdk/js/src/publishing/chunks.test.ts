import { expect, test } from "vitest";
import { chunks, encodeEvent } from "./chunks.js";
import { fits } from "./frame-size.js";

const sizes = (events: string[], most: number, bytes = 1_000_000) =>
  [...chunks(events, () => most, bytes)].map(({ length }) => length);

test("lists have at most so many events", () => {
  expect(sizes(Array(10).fill("{}"), 4)).toEqual([4, 4, 2]);
  expect(sizes([], 4)).toEqual([]);
});

test("lists stay below the bytes of a frame", () => {
  const event = "ž".repeat(1000);
  const limit = 10_000;
  const made = [...chunks(Array(20).fill(event), () => 1000, limit)];
  expect(made.flat()).toHaveLength(20);
  expect(made.length).toBeGreaterThan(1);
  for (const chunk of made) expect(fits(chunk.join(","), limit)).toBe(true);
});

test("an event that fits into no frame is refused", () => {
  expect(() => sizes(["x".repeat(2000)], 10, 2000)).toThrow("larger than maxFrameBytes");
});

test("bytes are counted, not characters", () => {
  expect(fits("x".repeat(900), 1000)).toBe(true);
  expect(fits("ž".repeat(460), 1000)).toBe(true);
  expect(fits("ž".repeat(470), 1000)).toBe(false);
  expect(fits("😀".repeat(240), 1000)).toBe(false);
});

test("an event has an id from the start, and only what was said", () => {
  const make = () => "made";
  expect(JSON.parse(encodeEvent({ payload: null, causedBy: ["a"] }, make))).toEqual({
    payload: null,
    opts: { id: "made", caused_by: ["a"] },
  });
  expect(JSON.parse(encodeEvent({ payload: 1, id: "given" }, make)).opts).toEqual({ id: "given" });
  expect(() => encodeEvent({ payload: undefined }, make)).toThrow("undefined is no JSON");
});
