import type { OpenSocket } from "./socket.js";

/** Opens a socket by the WebSocket that the platform has: browsers, and Node from 22 on. */
export const openBuiltIn: OpenSocket = (url, listener) => {
  const socket = new WebSocket(url);
  socket.onopen = () => listener.opened();
  socket.onmessage = ({ data }) => {
    if (typeof data === "string") listener.received(data);
  };
  socket.onclose = ({ code, reason }) => listener.closed(code, reason);
  return {
    send: (text) => socket.send(text),
    close: (code, reason) => socket.close(code, reason),
  };
};
