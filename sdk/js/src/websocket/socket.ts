/** The part of a WebSocket that the client uses: text messages only. */
export interface Socket {
  send(text: string): void;
  /** Starts the closing handshake; the listener's `closed` is called when the connection is closed. */
  close(code: number, reason: string): void;
}

/** Receives the events of a socket. No event follows `closed`. */
export interface SocketListener {
  opened(): void;
  received(text: string): void;
  /** The socket closed, or could not be opened: then `code` is 1006 and `reason` says why if the platform tells. */
  closed(code: number, reason: string): void;
}

/** Opens a socket. Failures are reported to the listener. */
export type OpenSocket = (url: string, listener: SocketListener) => Socket;
