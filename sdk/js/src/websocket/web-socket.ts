import type { OpenSocket } from "./socket.js";

/** How long a `close` event may take to follow an `error` event. */
const CLOSE_AFTER_ERROR_MS = 100;

/** Opens sockets with the standard WebSocket API, which browsers, Node 22 and the `ws` package share. */
export function openWith(create: (url: string) => WebSocket): OpenSocket {
  return (url, listener) => {
    const socket = create(url);
    let isClosed = false;
    let failure = "";
    const closed = (code: number, reason: string) => {
      if (isClosed) return;
      isClosed = true;
      listener.closed(code, reason);
    };
    socket.onopen = () => listener.opened();
    socket.onmessage = ({ data }) => {
      if (!isClosed && typeof data === "string") listener.received(data);
    };
    socket.onclose = ({ code, reason }) => closed(code, reason || failure);
    socket.onerror = (event) => {
      // Browsers do not say what failed; Node and `ws` do.
      failure = "message" in event ? String(event.message) : "";
      // Node's WebSocket fires no `close` event if it could not connect.
      setTimeout(() => closed(1006, failure || "the connection failed"), CLOSE_AFTER_ERROR_MS);
    };
    return {
      send: (text) => socket.send(text),
      close: (code, reason) => socket.close(code, reason),
    };
  };
}
