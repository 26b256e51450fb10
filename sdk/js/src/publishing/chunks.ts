import type { EventToPublish } from "../event.js";
import { wireOptions } from "../session/frames.js";
import { encodePayload, requireFits } from "./frame-size.js";

/** Room for `op`, `corr` and the longest topic name. */
const FRAME_OVERHEAD = 512;
const COUNT_EXACTLY_ABOVE = 256;

/** Encodes an event of a batch. */
export function encodeEvent(event: EventToPublish, nextId: () => string): string {
  const options = wireOptions({ ...event, id: event.id ?? nextId() });
  return `{"payload":${encodePayload(event.payload)},"opts":${JSON.stringify(options)}}`;
}

/**
 * Groups encoded events, in order, into chunks that fit into one frame each. Calls `maxEvents` for each event, because the
 * limit shrinks if a rate limit of the bus admits fewer events at once.
 */
export function* chunks(
  events: Iterable<string>,
  maxEvents: () => number,
  maxFrameBytes: number,
): Generator<string[], void, undefined> {
  let chunk: string[] = [];
  let bytes = 0;
  for (const event of events) {
    requireFits(event, maxFrameBytes - FRAME_OVERHEAD);
    // UTF-8 takes at most three bytes per UTF-16 unit; counting exactly pays off for large events only.
    const size = (event.length > COUNT_EXACTLY_ABOVE ? new TextEncoder().encode(event).length : event.length * 3) + 1;
    if (chunk.length > 0 && (chunk.length >= maxEvents() || bytes + size > maxFrameBytes - FRAME_OVERHEAD)) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(event);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}
