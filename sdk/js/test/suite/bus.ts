import { inject, onTestFinished } from "vitest";
import { type Client, type ConnectOptions, connect } from "../../src/index.js";
import type { ControlServer } from "../control/control-server.js";

type Calls = ControlServer["calls"];

/** Asks the control server. */
export async function control<Call extends keyof Calls>(
  call: Call,
  ...args: Parameters<Calls[Call]>
): Promise<Awaited<ReturnType<Calls[Call]>>> {
  const response = await fetch(inject("control"), { method: "POST", body: JSON.stringify({ call, args }) });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as Awaited<ReturnType<Calls[Call]>>;
}

/** Pages of another origin are refused unless the bus is told of them. */
const allowed = "location" in globalThis ? [`auth.allowed_origins=["${location.origin}"]`] : [];

/** The bus that all tests share; its rate limits are off. */
const sharedBus = await control("sharedBus", [...allowed, "limits.enabled=false"]);
export const shared = () => sharedBus;

/** A bus of this test's own. */
export async function ownBus(...settings: string[]) {
  const bus = await control("startBus", [...allowed, ...settings]);
  onTestFinished(() => control("remove", bus.name));
  return bus;
}

/** A proxy before `target`, of this test's own. */
export async function ownProxy(target: string) {
  const proxy = await control("startProxy", target);
  onTestFinished(() => control("remove", proxy.name));
  return proxy;
}

/** A client of this test's own, of the shared bus unless said otherwise; it comes back quickly. */
export async function client(url: string = shared().http, options: ConnectOptions = {}): Promise<Client> {
  const made = await connect(url, { reconnect: { minMs: 1, maxMs: 50 }, ...options });
  onTestFinished(() => made.close({ timeoutMs: 1000 }));
  return made;
}

/** A name that no other test uses. */
export const fresh = (word: string) => `${word}.${crypto.randomUUID().slice(0, 8)}`;

/** Resolves when `condition` holds. Tests that wait in vain fail by their timeout. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** A promise and what settles it. */
export function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** All that an iterator gives. */
export async function all<T>(events: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const event of events) list.push(event);
  return list;
}
