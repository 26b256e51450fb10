import { EndedError, type PrombusError, RefusedError } from "../errors.js";

/**
 * Close codes after which the client reconnects: server shutting down (1001), no close frame (1005, 1006), frame too
 * large (1009), slow consumer (4008), no pong (4009). All other codes, including unknown ones, are final.
 */
const RECONNECT_CODES: ReadonlySet<number> = new Set([1001, 1005, 1006, 1009, 4008, 4009]);
const NOT_AUTHENTICATED = 4401;

/** Returns the error that ends the client after a final close code, or `undefined` if the client may reconnect. */
export function finalClose(code: number, reason: string, hasToken: boolean): PrombusError | undefined {
  if (RECONNECT_CODES.has(code)) return undefined;
  if (code === NOT_AUTHENTICATED) {
    return hasToken ? undefined : new RefusedError("unauthorized", `the server requires a token: ${reason}`);
  }
  return new EndedError(code, reason);
}
