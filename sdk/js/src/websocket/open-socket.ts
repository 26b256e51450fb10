import { openBuiltIn } from "./built-in.js";
import type { OpenSocket } from "./socket.js";

/** How sockets are opened here. Node before 22 has no WebSocket of its own, so that it gets ours, and nobody else. */
export async function findOpenSocket(): Promise<OpenSocket> {
  if (typeof globalThis.WebSocket === "function") return openBuiltIn;
  const { openOnNode } = await import("./node-socket.js");
  return openOnNode;
}
