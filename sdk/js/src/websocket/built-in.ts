import type { OpenSocket } from "./socket.js";

/** How long a `close` may take to follow an `error`. */
const CLOSE_FOLLOWS_MS = 100;

/** Opens a socket by the WebSocket that the platform has: browsers, and Node from 22 on. */
export const openBuiltIn: OpenSocket = (url, listener) => {
  const socket = new WebSocket(url);
  let isClosed = false;
  const closed = (code: number, reason: string) => {
    if (isClosed) return;
    isClosed = true;
    listener.closed(code, reason);
  };
  socket.onopen = () => listener.opened();
  socket.onmessage = ({ data }) => {
    if (!isClosed && typeof data === "string") listener.received(data);
  };
  socket.onclose = ({ code, reason }) => closed(code, reason);
  // A close event should follow, and does in browsers. That of Node leaves it out where no connection could be made.
  socket.onerror = () => void setTimeout(() => closed(1006, "the connection failed"), CLOSE_FOLLOWS_MS);
  return {
    send: (text) => socket.send(text),
    close: (code, reason) => socket.close(code, reason),
  };
};
