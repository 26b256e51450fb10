import { EndedError, type PrombusError, RefusedError } from "../errors.js";

/**
 * Close codes after which connecting again can help: the server stops (1001), no code at all (1005, 1006), a frame above
 * the limit (1009), slow consumer (4008), no pong (4009). All others, unknown ones too, are final.
 */
const CONNECT_AGAIN: ReadonlySet<number> = new Set([1001, 1005, 1006, 1009, 4008, 4009]);
const NOT_AUTHENTICATED = 4401;

/** Why a connection that closed with `code` must not be opened again, or `undefined` if it may. */
export function finalClose(code: number, reason: string, hasToken: boolean): PrombusError | undefined {
  if (CONNECT_AGAIN.has(code)) return undefined;
  if (code === NOT_AUTHENTICATED) {
    return hasToken ? undefined : new RefusedError("unauthorized", `the server needs a token: ${reason}`);
  }
  return new EndedError(code, reason);
}
