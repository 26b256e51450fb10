import { expect, test } from "vitest";
import { Window } from "./window.js";

/** Work that ends when it is told to. */
function works(window: Window) {
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const run = (n: number, size = 1, signal?: AbortSignal) =>
    window.run(size, signal, () => {
      begun.push(n);
      return new Promise<number>((resolve) => {
        ends[n] = () => resolve(n);
      });
    });
  return { begun, ends, run };
}

const settle = () => new Promise((resolve) => setTimeout(resolve));

test("work begins at once while there is room, and then in order as room comes back", async () => {
  const window = new Window({ frames: 2, characters: 100, waiting: 10 });
  const { begun, ends, run } = works(window);
  const all = [0, 1, 2, 3, 4].map((n) => run(n));
  expect(begun).toEqual([0, 1]);
  expect([window.frames, window.waiting]).toEqual([2, 3]);
  ends[1]?.();
  await settle();
  expect(begun).toEqual([0, 1, 2]);
  for (const n of [0, 2]) ends[n]?.();
  await settle();
  for (const n of [3, 4]) ends[n]?.();
  expect(await Promise.all(all)).toEqual([0, 1, 2, 3, 4]);
  expect(begun).toEqual([0, 1, 2, 3, 4]);
  expect([window.frames, window.waiting]).toEqual([0, 0]);
});

test("characters count, too, and a single large frame may always go", async () => {
  const { begun, ends, run } = works(new Window({ frames: 10, characters: 100, waiting: 10 }));
  void run(0, 1000);
  void run(1, 60);
  expect(begun).toEqual([0]);
  ends[0]?.();
  await settle();
  void run(2, 41);
  void run(3, 1);
  // The small one does not overtake: order is kept.
  expect(begun).toEqual([0, 1]);
  ends[1]?.();
  await settle();
  expect(begun).toEqual([0, 1, 2, 3]);
});

test("only so many wait", async () => {
  const { run } = works(new Window({ frames: 1, characters: 100, waiting: 1 }));
  void run(0);
  void run(1);
  await expect(run(2)).rejects.toMatchObject({ code: "queue_full", isRetryable: true });
});

test("who gives up while waiting takes no room", async () => {
  const { begun, ends, run } = works(new Window({ frames: 1, characters: 100, waiting: 9 }));
  const abort = new AbortController();
  void run(0);
  const given = run(1, 1, abort.signal);
  void run(2);
  abort.abort(new Error("enough"));
  await expect(given).rejects.toThrow("enough");
  await expect(run(3, 1, abort.signal)).rejects.toThrow("enough");
  ends[0]?.();
  await settle();
  expect(begun).toEqual([0, 2]);
});

test("work that fails gives its room back", async () => {
  const window = new Window({ frames: 1, characters: 100, waiting: 9 });
  await expect(window.run(5, undefined, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(window.frames).toBe(0);
  await window.empty(60_000);
});
