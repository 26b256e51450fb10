import { expect, test } from "vitest";
import { Finished } from "./finished.js";
import { Gatherer } from "./gatherer.js";

function gathering(most: number, fail: (ids: string[]) => Error | undefined = () => undefined) {
  const sent: string[][] = [];
  const answers: (() => void)[] = [];
  const gatherer = new Gatherer<number>(
    most,
    (error) => String(error) === "Error: too many",
    (ids) => {
      sent.push(ids);
      const error = fail(ids);
      return new Promise((resolve, reject) => {
        answers.push(() => (error ? reject(error) : resolve(sent.length)));
      });
    },
  );
  return { gatherer, sent, answers };
}

const settle = () => new Promise((resolve) => setTimeout(resolve));

test("what is added in one moment, and what is added while a batch is under way, goes together", async () => {
  const { gatherer, sent, answers } = gathering(3);
  const first = ["a", "b"].map((id) => gatherer.add(id));
  await settle();
  for (const id of ["c", "d", "e", "f"]) void gatherer.add(id);
  await settle();
  expect(sent).toEqual([["a", "b"]]);
  answers[0]?.();
  expect(await Promise.all(first)).toEqual([1, 1]);
  await settle();
  answers[1]?.();
  await settle();
  expect(sent).toEqual([["a", "b"], ["c", "d", "e"], ["f"]]);
});

test("an error is that of all in the batch, and the next batch goes nonetheless", async () => {
  const { gatherer, answers } = gathering(10, (ids) => (ids.includes("a") ? new Error("no") : undefined));
  const refused = Promise.allSettled([gatherer.add("a"), gatherer.add("b")]);
  await settle();
  const next = gatherer.add("c");
  answers[0]?.();
  expect((await refused).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await settle();
  answers[1]?.();
  expect(await next).toBe(2);
});

test("too many at once are sent in halves, then and from then on", async () => {
  const { gatherer, sent, answers } = gathering(8, (ids) => (ids.length > 2 ? new Error("too many") : undefined));
  const all = Promise.all(["a", "b", "c", "d", "e"].map((id) => gatherer.add(id)));
  for (let n = 0; n < 5; n += 1) {
    await settle();
    answers[n]?.();
  }
  await all;
  expect(sent.map(({ length }) => length)).toEqual([5, 3, 2, 2, 1]);
});

test("only so many finished handlers are remembered", () => {
  const finished = new Finished(2);
  for (const id of ["a", "b", "a", "c"]) finished.add(id);
  expect(["a", "b", "c"].map((id) => finished.has(id))).toEqual([true, false, true]);
  finished.delete("a");
  expect(finished.size).toBe(1);
});
