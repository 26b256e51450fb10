import type { BusEvent, EventOptions } from "../event.js";

/** The answer `OK`. Which members are there depends on what was asked. */
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

/** An event on lease. */
export interface EventFrame {
  op: "EVENT";
  topic: string;
  group: string;
  event: BusEvent;
  ctx: { attempt: number; ack_deadline_ms: number };
}

/** What the server sends. */
export type ServerFrame = OkFrame | ErrFrame | EventFrame;

/** What the client sends: an operation and its members. */
export interface ClientFrame {
  op: string;
  [member: string]: unknown;
}

/** `opts` of an event as the wire has them. Absent members stay absent. */
export function wireOptions(options: EventOptions): Record<string, unknown> {
  const { id, ts, key, headers, tags, causedBy, sid } = options;
  return { id, ts, key, headers, tags, caused_by: causedBy, sid };
}

/** Reads a frame of the server; `undefined` if it is none. Kinds of frames that are not known are none. */
export function readServerFrame(text: string): ServerFrame | undefined {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof frame !== "object" || frame === null || !("op" in frame)) return undefined;
  return frame.op === "OK" || frame.op === "ERR" || frame.op === "EVENT" ? (frame as ServerFrame) : undefined;
}

/** The text of a frame, but for `corr`, which {@link withCorr} adds. */
export function encodeFrame(frame: ClientFrame): string {
  return JSON.stringify(frame);
}

/** Adds the text that the answer repeats. A frame is never empty: it has an `op`. */
export function withCorr(body: string, corr: string): string {
  return `{"corr":${JSON.stringify(corr)},${body.slice(1)}`;
}
