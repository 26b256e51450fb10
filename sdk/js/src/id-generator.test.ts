import { expect, test } from "vitest";
import { IdGenerator } from "./id-generator.js";

const allZeros = (bytes: Uint8Array) => void bytes.fill(0);
const allOnes = (bytes: Uint8Array) => void bytes.fill(255);

test("an id is a version 7 UUID that starts with its time", () => {
  expect(new IdGenerator(() => 0x0123456789ab, allZeros).next()).toBe("01234567-89ab-7000-8000-000000000000");
  expect(new IdGenerator(() => 0x0123456789ab, allOnes).next()).toBe("01234567-89ab-77ff-bfff-ffffffffffff");
});

test("ids increase within a millisecond, even when its counter overflows", () => {
  const generator = new IdGenerator(() => 1000, allOnes);
  const ids = Array.from({ length: 10_000 }, () => generator.next());
  expect(ids).toEqual([...ids].sort());
  expect(new Set(ids).size).toBe(10_000);
});

test("ids increase when the clock goes backwards", () => {
  const times = [5000, 4000, 4000, 1, 5001, 5002];
  const generator = new IdGenerator(() => times.shift() as number, allZeros);
  const ids = Array.from({ length: 6 }, () => generator.next());
  expect(ids).toEqual([...ids].sort());
  expect(new Set(ids).size).toBe(6);
});
