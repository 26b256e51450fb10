import type { EventToPublish } from "../event.js";
import { wireOptions } from "../session/frames.js";
import { encodePayload, requireFits } from "./frame-size.js";

/** JSON of one event in a list of events. */
export function encodeEvent(event: EventToPublish, makeId: () => string): string {
  const options = wireOptions({ ...event, id: event.id ?? makeId() });
  return `{"payload":${encodePayload(event.payload)},"opts":${JSON.stringify(options)}}`;
}

/**
 * Divides encoded events into lists that fit into one frame each, in their order. `most` is asked before each event, as
 * the bus may turn out to take fewer.
 */
export function* chunks(
  events: Iterable<string>,
  most: () => number,
  maxFrameBytes: number,
): Generator<string[], void, undefined> {
  let chunk: string[] = [];
  let bytes = 0;
  for (const event of events) {
    requireFits(event, maxFrameBytes - FRAME_HEAD);
    // Three bytes a character is the most that UTF-8 takes; counting exactly is worth it only for large events.
    const size = (event.length > EXACT_ABOVE ? new TextEncoder().encode(event).length : event.length * 3) + 1;
    if (chunk.length > 0 && (chunk.length >= most() || bytes + size > maxFrameBytes - FRAME_HEAD)) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(event);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}

/** Room for `op`, `corr` and a topic of the longest name. */
const FRAME_HEAD = 512;
const EXACT_ABOVE = 256;
