import { expect, test } from "vitest";
import { SendWindow } from "./send-window.js";

/** Runs work in the window that ends when the test says so. */
function works(window: SendWindow) {
  const started: number[] = [];
  const ends: (() => void)[] = [];
  const run = (n: number, size = 1, signal?: AbortSignal) =>
    window.run(size, signal, () => {
      started.push(n);
      return new Promise<number>((resolve) => {
        ends[n] = () => resolve(n);
      });
    });
  return { started, ends, run };
}

const settle = () => new Promise((resolve) => setTimeout(resolve));

test("starts work at once while there is room, and then in order as room returns", async () => {
  const window = new SendWindow({ frames: 2, characters: 100, waiting: 10 });
  const { started, ends, run } = works(window);
  const all = [0, 1, 2, 3, 4].map((n) => run(n));
  expect(started).toEqual([0, 1]);
  expect([window.frames, window.waiting]).toEqual([2, 3]);
  ends[1]?.();
  await settle();
  expect(started).toEqual([0, 1, 2]);
  for (const n of [0, 2]) ends[n]?.();
  await settle();
  for (const n of [3, 4]) ends[n]?.();
  expect(await Promise.all(all)).toEqual([0, 1, 2, 3, 4]);
  expect(started).toEqual([0, 1, 2, 3, 4]);
  expect([window.frames, window.waiting]).toEqual([0, 0]);
});

test("limits characters, but always admits a single large frame", async () => {
  const { started, ends, run } = works(new SendWindow({ frames: 10, characters: 100, waiting: 10 }));
  void run(0, 1000);
  void run(1, 60);
  expect(started).toEqual([0]);
  ends[0]?.();
  await settle();
  void run(2, 41);
  void run(3, 1);
  // The small one does not overtake the larger one.
  expect(started).toEqual([0, 1]);
  ends[1]?.();
  await settle();
  expect(started).toEqual([0, 1, 2, 3]);
});

test("rejects callers beyond the limit of waiting ones", async () => {
  const { run } = works(new SendWindow({ frames: 1, characters: 100, waiting: 1 }));
  void run(0);
  void run(1);
  await expect(run(2)).rejects.toMatchObject({ code: "queue_full", isRetryable: true });
});

test("a cancelled caller takes no room", async () => {
  const { started, ends, run } = works(new SendWindow({ frames: 1, characters: 100, waiting: 9 }));
  const abort = new AbortController();
  void run(0);
  const cancelled = run(1, 1, abort.signal);
  void run(2);
  abort.abort(new Error("enough"));
  await expect(cancelled).rejects.toThrow("enough");
  await expect(run(3, 1, abort.signal)).rejects.toThrow("enough");
  ends[0]?.();
  await settle();
  expect(started).toEqual([0, 2]);
});

test("failed work returns its room", async () => {
  const window = new SendWindow({ frames: 1, characters: 100, waiting: 9 });
  await expect(window.run(5, undefined, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(window.frames).toBe(0);
  await window.empty(60_000);
});
