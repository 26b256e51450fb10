import { expect, test } from "vitest";
import { IdBatcher } from "./id-batcher.js";
import { UnconfirmedMarks } from "./unconfirmed-marks.js";

function batching(maxIds: number, fail: (ids: string[]) => Error | undefined = () => undefined) {
  const sent: string[][] = [];
  const answers: (() => void)[] = [];
  const batcher = new IdBatcher<number>(
    maxIds,
    (error) => String(error) === "Error: too many",
    (ids) => {
      sent.push(ids);
      const error = fail(ids);
      return new Promise((resolve, reject) => {
        answers.push(() => (error ? reject(error) : resolve(sent.length)));
      });
    },
  );
  return { batcher, sent, answers };
}

const settle = () => new Promise((resolve) => setTimeout(resolve));

test("ids added at once, or while a batch is in flight, go together", async () => {
  const { batcher, sent, answers } = batching(3);
  const first = ["a", "b"].map((id) => batcher.add(id));
  await settle();
  for (const id of ["c", "d", "e", "f"]) void batcher.add(id);
  await settle();
  expect(sent).toEqual([["a", "b"]]);
  answers[0]?.();
  expect(await Promise.all(first)).toEqual([1, 1]);
  await settle();
  answers[1]?.();
  await settle();
  expect(sent).toEqual([["a", "b"], ["c", "d", "e"], ["f"]]);
});

test("an error rejects the whole batch, and the next batch is sent anyway", async () => {
  const { batcher, answers } = batching(10, (ids) => (ids.includes("a") ? new Error("no") : undefined));
  const refused = Promise.allSettled([batcher.add("a"), batcher.add("b")]);
  await settle();
  const next = batcher.add("c");
  answers[0]?.();
  expect((await refused).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await settle();
  answers[1]?.();
  expect(await next).toBe(2);
});

test("a batch that is too large is halved, and later ones stay small", async () => {
  const { batcher, sent, answers } = batching(8, (ids) => (ids.length > 2 ? new Error("too many") : undefined));
  const all = Promise.all(["a", "b", "c", "d", "e"].map((id) => batcher.add(id)));
  for (let n = 0; n < 5; n += 1) {
    await settle();
    answers[n]?.();
  }
  await all;
  expect(sent.map(({ length }) => length)).toEqual([5, 3, 2, 2, 1]);
});

test("forgets the oldest unconfirmed marks beyond the capacity", () => {
  const marks = new UnconfirmedMarks(2);
  for (const id of ["a", "b", "a", "c"]) marks.add(id);
  expect(["a", "b", "c"].map((id) => marks.has(id))).toEqual([true, false, true]);
  marks.delete("a");
  expect(marks.size).toBe(1);
});
