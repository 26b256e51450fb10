import { expect, test } from "vitest";
import { LineSplitter } from "./line-splitter.js";
import { ServerSentEventParser } from "./server-sent-events.js";

test("yields the same lines however the text is split into chunks", () => {
  const text = "one\r\ntwo\n\nthree\nnot ended";
  for (let size = 1; size <= text.length; size += 1) {
    const splitter = new LineSplitter(100);
    const lines: string[] = [];
    for (let at = 0; at < text.length; at += size) lines.push(...splitter.split(text.slice(at, at + size)));
    expect(lines).toEqual(["one", "two", "", "three"]);
    expect(splitter.isMidLine).toBe(true);
  }
});

test("rejects a line above the limit", () => {
  const splitter = new LineSplitter(10);
  splitter.split("0123456789");
  expect(() => splitter.split("0")).toThrow("too long");
});

test("joins the data of server-sent events and ignores other fields", () => {
  const parser = new ServerSentEventParser();
  const lines = ["retry: 1000", "", ": a comment", "id: 1", "data: one", "data:two", "", "event: x", "", "data:", ""];
  lines.push("event: damaged", "data: 1", "", "data: 2", "");
  expect(lines.map((line) => parser.parseLine(line)).filter((event) => event !== undefined)).toEqual([
    { type: "message", data: "one\ntwo" },
    { type: "message", data: "" },
    { type: "damaged", data: "1" },
    { type: "message", data: "2" },
  ]);
});
