import { describe, expect, test } from "vitest";
import { OPCODE, writeClose, writeFrame } from "./frame-format.js";
import { FrameReader, type Incoming } from "./frame-reader.js";

const bytes = (...list: number[]) => Uint8Array.from(list);
const text = (word: string) => new TextEncoder().encode(word);

/** A frame as a server writes it: without a mask. */
function serverFrame(opcode: number, payload: Uint8Array, fin = true): Uint8Array {
  const size = payload.length;
  const head = [(fin ? 0x80 : 0) | opcode];
  if (size < 126) head.push(size);
  else if (size < 0x1_0000) head.push(126, size >> 8, size & 255);
  else head.push(127, 0, 0, 0, 0, (size >> 24) & 255, (size >> 16) & 255, (size >> 8) & 255, size & 255);
  return bytes(...head, ...payload);
}

const joined = (...pieces: Uint8Array[]) => bytes(...pieces.flatMap((piece) => [...piece]));
const read = (piece: Uint8Array, limit = 100_000) => new FrameReader(limit).read(piece);

test.each([0, 1, 125, 126, 127, 65_535, 65_536, 70_000])("a text of %i bytes is read", (size) => {
  const word = "x".repeat(size);
  expect(read(serverFrame(OPCODE.text, text(word)))).toEqual([{ kind: "text", text: word }]);
});

test("frames are the same however the bytes are cut into pieces", () => {
  const all = joined(
    serverFrame(OPCODE.text, text("žluť 😀"), false),
    serverFrame(OPCODE.ping, text("are you there")),
    serverFrame(OPCODE.continuation, text(""), false),
    serverFrame(OPCODE.continuation, text(" and more")),
    serverFrame(OPCODE.text, text("y".repeat(300))),
    serverFrame(OPCODE.pong, text("")),
    serverFrame(OPCODE.close, writeClose(4008, "too slow")),
  );
  const expected: Incoming[] = [
    { kind: "ping", payload: text("are you there") },
    { kind: "text", text: "žluť 😀 and more" },
    { kind: "text", text: "y".repeat(300) },
    { kind: "pong" },
    { kind: "close", code: 4008, reason: "too slow" },
  ];
  for (const size of [1, 2, 3, 5, 7, 11, 64, 127, all.length]) {
    const reader = new FrameReader(1000);
    const got: Incoming[] = [];
    for (let at = 0; at < all.length; at += size) got.push(...reader.read(all.slice(at, at + size)));
    expect(got).toEqual(expected);
  }
});

test("a character may be cut between two fragments", () => {
  const whole = text("😀");
  const frames = joined(
    serverFrame(OPCODE.text, whole.slice(0, 2), false),
    serverFrame(OPCODE.continuation, whole.slice(2)),
  );
  expect(read(frames)).toEqual([{ kind: "text", text: "😀" }]);
});

describe("what breaks the protocol is refused with the code for it", () => {
  test.each([
    ["a reserved bit", bytes(0xc1, 0), 1002],
    ["a mask", bytes(0x81, 0x80, 0, 0, 0, 0), 1002],
    ["an unknown opcode", serverFrame(3, text("")), 1002],
    ["an unknown control opcode", serverFrame(11, text("")), 1002],
    ["a control frame in fragments", serverFrame(OPCODE.ping, text(""), false), 1002],
    ["a long control frame", serverFrame(OPCODE.ping, new Uint8Array(126)), 1002],
    ["a fragment of nothing", serverFrame(OPCODE.continuation, text("x")), 1002],
    ["a text in a text", joined(serverFrame(1, text("a"), false), serverFrame(1, text("b"))), 1002],
    ["a binary message", serverFrame(OPCODE.binary, text("x")), 1003],
    ["a text that is not UTF-8", serverFrame(OPCODE.text, bytes(0xff)), 1007],
    ["half a close code", serverFrame(OPCODE.close, bytes(3)), 1002],
    ["a close code that is never sent", serverFrame(OPCODE.close, bytes(3, 0xee)), 1002],
    ["a close code below all", serverFrame(OPCODE.close, bytes(0, 5)), 1002],
    ["a large message", serverFrame(OPCODE.text, text("x".repeat(101))), 1009],
    [
      "a large message in fragments",
      joined(serverFrame(1, text("x".repeat(60)), false), serverFrame(0, text("x".repeat(41)))),
      1009,
    ],
    ["a size beyond all numbers", bytes(0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255), 1009],
  ])("%s", (_, frame, closeCode) => {
    expect(() => read(frame, 100)).toThrow(expect.objectContaining({ name: "WebSocketViolation", closeCode }));
  });
});

test("a large message is refused by its head, before it is all there", () => {
  const head = serverFrame(OPCODE.text, new Uint8Array(70_000)).slice(0, 10);
  expect(() => read(head, 69_999)).toThrow("larger than 69999 bytes");
});

test("a close without a code is 1005", () => {
  expect(read(serverFrame(OPCODE.close, bytes()))).toEqual([{ kind: "close", code: 1005, reason: "" }]);
});

test.each([0, 125, 126, 65_535, 65_536])("a frame of the client of %i bytes is masked", (size) => {
  const mask = bytes(1, 2, 3, 4);
  const payload = new Uint8Array(size).fill(0x55);
  const frame = writeFrame(OPCODE.text, payload, mask);
  expect([frame[0], (frame[1] as number) & 0x80]).toEqual([0x81, 0x80]);
  const start = frame.length - size;
  expect(frame.slice(start - 4, start)).toEqual(mask);
  expect(frame.slice(start).map((byte, at) => byte ^ (mask[at % 4] as number))).toEqual(payload);
  // Without its mask a server's reader understands it.
  const unmasked = joined(frame.slice(0, start - 4), payload);
  unmasked[1] = (unmasked[1] as number) & 0x7f;
  expect(read(unmasked)).toEqual([{ kind: "text", text: "U".repeat(size) }]);
});

test("a close frame is never too long", () => {
  expect(writeClose(1000, "x".repeat(500))).toHaveLength(125);
  expect(writeClose(1005, "")).toHaveLength(0);
});
