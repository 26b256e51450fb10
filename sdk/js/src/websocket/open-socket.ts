import type { OpenSocket } from "./socket.js";
import { openWith } from "./web-socket.js";

const WS_OPTIONS = {
  // The server declines compression.
  perMessageDeflate: false,
  handshakeTimeout: 10_000,
  closeTimeout: 5_000,
  // Above the largest configurable frame with everything around its payload.
  maxPayload: 32 * 1024 * 1024,
};

/**
 * Returns the platform's WebSocket (browsers, Node 22 and newer), or else that of the `ws` package. The import is
 * dynamic so that browsers never load `ws`; the `browser` field of package.json keeps it out of bundles.
 */
export async function findOpenSocket(): Promise<OpenSocket> {
  if (typeof globalThis.WebSocket === "function") return openWith((url) => new WebSocket(url));
  const ws = await import("ws");
  return openWith((url) => new ws.WebSocket(url, WS_OPTIONS) as unknown as WebSocket);
}
