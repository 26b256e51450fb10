import { inject, onTestFinished } from "vitest";
import { type Client, type ConnectOptions, connect } from "../../src/index.js";
import type { ControlServer } from "../control/control-server.js";

type Calls = ControlServer["calls"];

/** Calls the control server. */
export async function control<Call extends keyof Calls>(
  call: Call,
  ...args: Parameters<Calls[Call]>
): Promise<Awaited<ReturnType<Calls[Call]>>> {
  const response = await fetch(inject("control"), { method: "POST", body: JSON.stringify({ call, args }) });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as Awaited<ReturnType<Calls[Call]>>;
}

/** The bus refuses pages of other origins unless it is configured to allow them. */
const allowOrigin = "location" in globalThis ? [`auth.allowed_origins=["${location.origin}"]`] : [];

/** The bus that all tests share, without rate limits. */
// Short retries, for tests that lose one connection after another.
const retry = ["groups.retry.first_ms=10", "groups.retry.max_ms=100"];
const sharedBus = await control("sharedBus", [...allowOrigin, "limits.enabled=false", ...retry]);
export const shared = () => sharedBus;

/** Starts a bus for this test. */
export async function ownBus(...settings: string[]) {
  const bus = await control("startBus", [...allowOrigin, ...settings]);
  onTestFinished(() => control("remove", bus.name));
  return bus;
}

/** Starts a proxy to `target` for this test. */
export async function ownProxy(target: string) {
  const proxy = await control("startProxy", target);
  onTestFinished(() => control("remove", proxy.name));
  return proxy;
}

/** Connects a client for this test, by default to the shared bus. It reconnects quickly. */
export async function client(url: string = shared().http, options: ConnectOptions = {}): Promise<Client> {
  const client = await connect(url, { reconnect: { minMs: 1, maxMs: 50 }, ...options });
  onTestFinished(() => client.close({ timeoutMs: 1000 }));
  return client;
}

/** Returns a name that no other test uses. */
export const fresh = (word: string) => `${word}.${crypto.randomUUID().slice(0, 8)}`;

/** Waits for `condition`. A test that waits in vain fails by its timeout. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** A promise and the function that resolves it. */
export function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Collects the events of an iterator. */
export async function all<T>(events: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const event of events) list.push(event);
  return list;
}
