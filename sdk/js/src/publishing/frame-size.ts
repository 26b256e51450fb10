import { RefusedError } from "../errors.js";

/** Room for `corr` and the brackets around the body. */
const ENVELOPE_BYTES = 64;

/** Returns `true` if a body fits into a frame of `limit` bytes. Encodes it only if its length does not decide that. */
export function fits(text: string, limit: number): boolean {
  const room = limit - ENVELOPE_BYTES;
  if (text.length * 3 <= room) return true;
  return text.length <= room && new TextEncoder().encode(text).length <= room;
}

/** Throws if the frame is too large: the bus would close the connection. */
export function requireFits(text: string, limit: number): void {
  if (fits(text, limit)) return;
  throw new RefusedError("payload_too_large", `the frame is larger than maxFrameBytes (${limit} bytes)`);
}

/** Encodes a payload. Throws for values that JSON cannot represent, such as `undefined` and functions. */
export function encodePayload(payload: unknown): string {
  const text: string | undefined = JSON.stringify(payload);
  if (text === undefined) throw new RefusedError("bad_json", `JSON cannot represent ${typeof payload}`);
  return text;
}
