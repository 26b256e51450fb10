import { expect, test } from "vitest";
import { IdSource } from "./id-source.js";

const noChance = (bytes: Uint8Array) => void bytes.fill(0);
const allChance = (bytes: Uint8Array) => void bytes.fill(255);

test("an id is a UUID of version 7 that begins with its time", () => {
  expect(new IdSource(() => 0x0123456789ab, noChance).next()).toBe("01234567-89ab-7000-8000-000000000000");
  expect(new IdSource(() => 0x0123456789ab, allChance).next()).toBe("01234567-89ab-77ff-bfff-ffffffffffff");
});

test("ids rise within a millisecond, also when its counter is used up", () => {
  const source = new IdSource(() => 1000, allChance);
  const ids = Array.from({ length: 10_000 }, () => source.next());
  expect(ids).toEqual([...ids].sort());
  expect(new Set(ids).size).toBe(10_000);
});

test("ids rise when the clock goes back", () => {
  const times = [5000, 4000, 4000, 1, 5001, 5002];
  const source = new IdSource(() => times.shift() as number, noChance);
  const ids = Array.from({ length: 6 }, () => source.next());
  expect(ids).toEqual([...ids].sort());
  expect(new Set(ids).size).toBe(6);
});
