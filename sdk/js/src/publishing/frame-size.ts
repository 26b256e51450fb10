import { RefusedError } from "../errors.js";

/** Room for `corr` and the brackets around what a caller says. */
const AROUND = 64;

/** The bytes of a text in UTF-8, measured only where they matter: up to `limit` / 3 characters always fit. */
export function fits(text: string, limit: number): boolean {
  const room = limit - AROUND;
  if (text.length * 3 <= room) return true;
  return text.length <= room && new TextEncoder().encode(text).length <= room;
}

/** Refuses what the bus would refuse, and close the connection for. */
export function requireFits(text: string, limit: number): void {
  if (fits(text, limit)) return;
  throw new RefusedError("payload_too_large", `the frame is larger than maxFrameBytes, ${limit} bytes`);
}

/** JSON of a payload. `undefined` and functions are not JSON; `null` is. */
export function encodePayload(payload: unknown): string {
  const text: string | undefined = JSON.stringify(payload);
  if (text === undefined) throw new RefusedError("bad_json", `a payload of type ${typeof payload} is no JSON`);
  return text;
}
