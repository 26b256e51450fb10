import { expect, test } from "vitest";
import { chunks, encodeEvent } from "./chunks.js";
import { fits } from "./frame-size.js";

const sizes = (events: string[], maxEvents: number, bytes = 1_000_000) =>
  [...chunks(events, () => maxEvents, bytes)].map(({ length }) => length);

test("chunks have at most the given number of events", () => {
  expect(sizes(Array(10).fill("{}"), 4)).toEqual([4, 4, 2]);
  expect(sizes([], 4)).toEqual([]);
});

test("chunks fit into a frame", () => {
  const event = "ž".repeat(1000);
  const limit = 10_000;
  const result = [...chunks(Array(20).fill(event), () => 1000, limit)];
  expect(result.flat()).toHaveLength(20);
  expect(result.length).toBeGreaterThan(1);
  for (const chunk of result) expect(fits(chunk.join(","), limit)).toBe(true);
});

test("rejects an event that fits into no frame", () => {
  expect(() => sizes(["x".repeat(2000)], 10, 2000)).toThrow("larger than maxFrameBytes");
});

test("counts bytes, not characters", () => {
  expect(fits("x".repeat(900), 1000)).toBe(true);
  expect(fits("ž".repeat(460), 1000)).toBe(true);
  expect(fits("ž".repeat(470), 1000)).toBe(false);
  expect(fits("😀".repeat(240), 1000)).toBe(false);
});

test("an encoded event has an id, and otherwise only the given members", () => {
  const nextId = () => "generated";
  expect(JSON.parse(encodeEvent({ payload: null, causedBy: ["a"] }, nextId))).toEqual({
    payload: null,
    opts: { id: "generated", caused_by: ["a"] },
  });
  expect(JSON.parse(encodeEvent({ payload: 1, id: "given" }, nextId)).opts).toEqual({ id: "given" });
  expect(() => encodeEvent({ payload: undefined }, nextId)).toThrow("JSON cannot represent undefined");
});
