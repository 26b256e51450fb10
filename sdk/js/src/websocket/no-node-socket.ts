import type { OpenSocket } from "./socket.js";

/** Stands in for `node-socket` where code is bundled for browsers, which have a WebSocket of their own. */
export const openOnNode: OpenSocket = () => {
  throw new Error("this platform has no WebSocket");
};
