/** A WebSocket as the client needs it: text only. */
export interface Socket {
  /** Sends a text. */
  send(text: string): void;
  /** Closes the connection; the listener is told when it is closed. */
  close(code: number, reason: string): void;
}

/** Who is told what happens to a socket. After `closed` nothing more comes. */
export interface SocketListener {
  /** It is open. */
  opened(): void;
  /** A text came. */
  received(text: string): void;
  /** It is closed, or could not be opened (1006; `reason` says why, where that can be known). */
  closed(code: number, reason: string): void;
}

/** Opens a socket. Failures are told to the listener. */
export type OpenSocket = (url: string, listener: SocketListener) => Socket;
