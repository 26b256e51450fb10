import { expect, test } from "vitest";
import type { EventFrame } from "../session/frames.js";
import { type Lease, LeaseBook } from "./lease-book.js";

const frame = (id: string, leftMs = 1000, attempt = 1): EventFrame => ({
  op: "EVENT",
  topic: "t",
  group: "g",
  event: { seq: 1, id, ts: 0, topic: "t", payload: null },
  ctx: { attempt, ack_deadline_ms: leftMs },
});

function lent(book: LeaseBook, id: string, now = 0, leftMs = 1000): Lease {
  const lease = book.lend(frame(id, leftMs), now);
  if (lease === undefined) throw new Error(`${id} is here already`);
  book.ready(lease);
  return lease;
}

test("handlers begin in order, as many as may run at a time", () => {
  const book = new LeaseBook(2, 10);
  const [a, b, c] = ["a", "b", "c"].map((id) => lent(book, id)) as [Lease, Lease, Lease];
  expect([book.begin(), book.begin(), book.begin()]).toEqual([a, b, undefined]);
  book.ending(b);
  expect(book.begin()).toBe(c);
  expect(book.running).toBe(2);
});

test("what is still screened does not begin", () => {
  const book = new LeaseBook(1, 10);
  book.lend(frame("a"), 0);
  const b = lent(book, "b");
  expect(book.begin()).toBe(b);
});

test("a lease is extended when half of it is over, and then when half of the extension is", () => {
  const book = new LeaseBook(1, 10);
  const a = lent(book, "a", 0, 1000);
  expect(book.renewsAt).toBe(500);
  expect(book.toRenew(499)).toEqual([]);
  expect(book.toRenew(500)).toEqual([a]);
  expect(book.toRenew(501)).toEqual([]);
  book.extended(a, 500, 30_000);
  expect(a.endsAt).toBe(30_500);
  expect(book.toRenew(15_499)).toEqual([]);
  expect(book.renewsAt).toBe(15_500);
  expect(book.toRenew(15_500)).toEqual([a]);
});

test("an extension without an answer is asked for again, but not all the time", () => {
  const book = new LeaseBook(1, 10);
  const a = lent(book, "a", 0, 10_000);
  expect(book.toRenew(5000)).toEqual([a]);
  expect(book.renewsAt).toBe(7500);
  expect(book.toRenew(9900)).toEqual([a]);
  expect(book.renewsAt).toBe(10_900);
});

test("what comes again while it runs has a lease again and does not begin a second time", () => {
  const book = new LeaseBook(2, 10);
  const a = lent(book, "a");
  book.begin();
  book.lose(a, new Error("lost"));
  expect([a.abort.signal.aborted, a.endsAt, book.has(a)]).toEqual([true, undefined, true]);
  expect(book.lend(frame("a", 1000, 2), 100)).toBeUndefined();
  expect([a.attempt, a.endsAt]).toEqual([2, 1100]);
  expect(book.begin()).toBeUndefined();
});

test("what comes again while it is being given back is lent anew", () => {
  const book = new LeaseBook(1, 10);
  const a = lent(book, "a");
  book.begin();
  book.ending(a);
  const again = lent(book, "a");
  expect(again).not.toBe(a);
  book.drop(a);
  expect([book.has(again), book.begin()]).toEqual([true, again]);
});

test("with the connection all leases are lost: what runs is told, the rest is forgotten", () => {
  const book = new LeaseBook(1, 10);
  const [running, waiting] = [lent(book, "a"), lent(book, "b")];
  book.begin();
  book.loseAll(new Error("lost"));
  expect([book.has(running), book.has(waiting), book.begin()]).toEqual([true, false, undefined]);
  book.toRenew(0);
  expect(book.renewsAt).toBeUndefined();
  expect(running.abort.signal.aborted).toBe(true);
});

test("what waits longer than its lease is dropped when something comes, so that the book stays small", () => {
  const book = new LeaseBook(1, 10);
  for (let n = 0; n < 100; n += 1) lent(book, `e${n}`, n * 10, 50);
  expect(book.size).toBeLessThanOrEqual(10);
});

test("quiet is when nothing runs and nothing is being ended", () => {
  const book = new LeaseBook(1, 10);
  const a = lent(book, "a");
  lent(book, "b");
  expect(book.isQuiet).toBe(true);
  book.begin();
  expect(book.isQuiet).toBe(false);
  book.ending(a);
  expect(book.isQuiet).toBe(false);
  book.drop(a);
  book.dropUnbegun();
  expect([book.isQuiet, book.size]).toEqual([true, 0]);
});
