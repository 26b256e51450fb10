import type { BusEvent, EventOptions } from "../event.js";

/** The answer `OK`. The operation determines which members are present. */
export interface OkFrame {
  op: "OK";
  corr?: string;
  id?: string;
  seq?: number;
  duplicate?: boolean;
  results?: { id: string; seq: number; duplicate?: boolean }[];
  stale?: boolean;
  seen?: string[];
}

/** The answer `ERR`. */
export interface ErrFrame {
  op: "ERR";
  corr?: string;
  code: string;
  msg: string;
  retry_after_ms?: number;
}

/** A delivery. */
export interface EventFrame {
  op: "EVENT";
  topic: string;
  group: string;
  event: BusEvent;
  ctx: { attempt: number; ack_deadline_ms: number };
}

/** The server has ended a subscription. */
export interface EndedFrame {
  op: "ENDED";
  topic: string;
  group: string;
  reason: string;
}

/** A delivery whose text the JSON reader does not accept, such as one that nests too deep for it. */
export interface UnreadableEvent {
  op: "UNREADABLE";
  topic: string;
  group: string;
  id: string;
  reason: string;
}

export type ServerFrame = OkFrame | ErrFrame | EventFrame | EndedFrame | UnreadableEvent;

const SERVER_OPS = new Set<unknown>(["OK", "ERR", "EVENT", "ENDED"]);

/** The start of a delivery, as the server writes it. */
const EVENT_HEAD =
  /^\{"op":"EVENT","topic":"([^"\\]+)","group":"([^"\\]+)","event":\{"seq":\d+,"id":("(?:[^"\\]|\\.)+")[,}]/;

export interface ClientFrame {
  op: string;
  [member: string]: unknown;
}

/** Converts event options to `opts` on the wire. Absent members stay absent. */
export function wireOptions(options: EventOptions): Record<string, unknown> {
  const { id, ts, key, headers, tags, causedBy, sid } = options;
  return { id, ts, key, headers, tags, caused_by: causedBy, sid };
}

/** Parses a frame of the server. Returns `undefined` for anything else, including frame types of newer servers. */
export function parseServerFrame(text: string): ServerFrame | undefined {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch (error) {
    return unreadableEvent(text, error);
  }
  if (typeof frame !== "object" || frame === null || !("op" in frame)) return undefined;
  return SERVER_OPS.has(frame.op) ? (frame as ServerFrame) : undefined;
}

function unreadableEvent(text: string, error: unknown): UnreadableEvent | undefined {
  const [, topic, group, id] = EVENT_HEAD.exec(text) ?? [];
  if (topic === undefined || group === undefined || id === undefined) return undefined;
  const reason = `the client cannot read the event: ${error instanceof Error ? error.message : error}`;
  return { op: "UNREADABLE", topic, group, id: JSON.parse(id) as string, reason };
}

/** Encodes a frame without `corr`, which {@link withCorr} adds. */
export function encodeFrame(frame: ClientFrame): string {
  return JSON.stringify(frame);
}

/** Adds the correlation id that the answer repeats to an encoded frame. The frame is not empty: it has an `op`. */
export function withCorr(body: string, corr: string): string {
  return `{"corr":${JSON.stringify(corr)},${body.slice(1)}`;
}
