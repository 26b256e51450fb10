import { expect, test } from "vitest";
import { LineSplitter } from "./lines.js";
import { EventData } from "./server-sent-events.js";

test("lines are the same however the text is cut into pieces", () => {
  const text = "one\r\ntwo\n\nthree\nnot ended";
  for (let size = 1; size <= text.length; size += 1) {
    const splitter = new LineSplitter(100);
    const lines: string[] = [];
    for (let at = 0; at < text.length; at += size) lines.push(...splitter.split(text.slice(at, at + size)));
    expect(lines).toEqual(["one", "two", "", "three"]);
    expect(splitter.isMidLine).toBe(true);
  }
});

test("a line without an end is not kept for ever", () => {
  const splitter = new LineSplitter(10);
  splitter.split("0123456789");
  expect(() => splitter.split("0")).toThrow("too long");
});

test("data of server-sent events is put together, the rest passed over", () => {
  const data = new EventData();
  const lines = ["retry: 1000", "", ": a comment", "id: 1", "data: one", "data:two", "", "event: x", "", "data:", ""];
  expect(lines.map((line) => data.line(line)).filter((text) => text !== undefined)).toEqual(["one\ntwo", ""]);
});
