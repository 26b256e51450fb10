import { expect, test } from "vitest";
import type { EventFrame } from "../session/frames.js";
import { type Lease, LeaseTable } from "./lease-table.js";

const frame = (id: string, leftMs = 1000, attempt = 1): EventFrame => ({
  op: "EVENT",
  topic: "t",
  group: "g",
  event: { seq: 1, id, ts: 0, topic: "t", payload: null },
  ctx: { attempt, ack_deadline_ms: leftMs },
});

function leased(leases: LeaseTable, id: string, now = 0, leftMs = 1000): Lease {
  const lease = leases.add(frame(id, leftMs), now);
  if (lease === undefined) throw new Error(`${id} is already leased`);
  leases.enqueue(lease);
  return lease;
}

test("starts handlers in order, up to the concurrency", () => {
  const leases = new LeaseTable(2, 10);
  const [a, b, c] = ["a", "b", "c"].map((id) => leased(leases, id)) as [Lease, Lease, Lease];
  expect([leases.startNext(), leases.startNext(), leases.startNext()]).toEqual([a, b, undefined]);
  leases.startSettling(b);
  expect(leases.startNext()).toBe(c);
  expect(leases.running).toBe(2);
});

test("does not start an event whose mark is still being checked", () => {
  const leases = new LeaseTable(1, 10);
  leases.add(frame("a"), 0);
  const b = leased(leases, "b");
  expect(leases.startNext()).toBe(b);
});

test("a lease is due half-way to its end, and then half-way through its extension", () => {
  const leases = new LeaseTable(1, 10);
  const a = leased(leases, "a", 0, 1000);
  expect(leases.renewsAt).toBe(500);
  expect(leases.takeDue(499)).toEqual([]);
  expect(leases.takeDue(500)).toEqual([a]);
  expect(leases.takeDue(501)).toEqual([]);
  leases.extended(a, 500, 30_000);
  expect(a.endsAt).toBe(30_500);
  expect(leases.takeDue(15_499)).toEqual([]);
  expect(leases.renewsAt).toBe(15_500);
  expect(leases.takeDue(15_500)).toEqual([a]);
});

test("an unanswered extension is requested again, at most once per second", () => {
  const leases = new LeaseTable(1, 10);
  const a = leased(leases, "a", 0, 10_000);
  expect(leases.takeDue(5000)).toEqual([a]);
  expect(leases.renewsAt).toBe(7500);
  expect(leases.takeDue(9900)).toEqual([a]);
  expect(leases.renewsAt).toBe(10_900);
});

test("an event redelivered to its running handler gets a lease and does not start again", () => {
  const leases = new LeaseTable(2, 10);
  const a = leased(leases, "a");
  leases.startNext();
  leases.lose(a, new Error("lost"));
  expect([a.abort.signal.aborted, a.endsAt, leases.has(a)]).toEqual([true, undefined, true]);
  expect(leases.add(frame("a", 1000, 2), 100)).toBeUndefined();
  expect([a.attempt, a.endsAt]).toEqual([2, 1100]);
  expect(leases.startNext()).toBeUndefined();
});

test("an event redelivered while it is being settled gets a new lease", () => {
  const leases = new LeaseTable(1, 10);
  const a = leased(leases, "a");
  leases.startNext();
  leases.startSettling(a);
  const again = leased(leases, "a");
  expect(again).not.toBe(a);
  leases.drop(a);
  expect([leases.has(again), leases.startNext()]).toEqual([true, again]);
});

test("losing all leases aborts running handlers and drops the rest", () => {
  const leases = new LeaseTable(1, 10);
  const [running, waiting] = [leased(leases, "a"), leased(leases, "b")];
  leases.startNext();
  leases.loseAll(new Error("lost"));
  expect([leases.has(running), leases.has(waiting), leases.startNext()]).toEqual([true, false, undefined]);
  leases.takeDue(0);
  expect(leases.renewsAt).toBeUndefined();
  expect(running.abort.signal.aborted).toBe(true);
});

test("drops waiting events whose leases ended, so that the table stays small", () => {
  const leases = new LeaseTable(1, 10);
  for (let n = 0; n < 100; n += 1) leased(leases, `e${n}`, n * 10, 50);
  expect(leases.size).toBeLessThanOrEqual(10);
});

test("is idle when no handler runs and no event is being settled", () => {
  const leases = new LeaseTable(1, 10);
  const a = leased(leases, "a");
  leased(leases, "b");
  expect(leases.isIdle).toBe(true);
  leases.startNext();
  expect(leases.isIdle).toBe(false);
  leases.startSettling(a);
  expect(leases.isIdle).toBe(false);
  leases.drop(a);
  leases.dropUnstarted();
  expect([leases.isIdle, leases.size]).toEqual([true, 0]);
});
