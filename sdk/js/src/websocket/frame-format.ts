/** Opcodes of RFC 6455 that a text-only client meets. */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** The most that a control frame may carry. */
export const CONTROL_BYTES = 125;

/** A frame of a client: masked, whole. */
export function writeFrame(opcode: number, payload: Uint8Array, mask: Uint8Array): Uint8Array<ArrayBuffer> {
  const size = payload.length;
  const extended = size < 126 ? 0 : size < 0x1_0000 ? 2 : 8;
  const start = 2 + extended + 4;
  const frame = new Uint8Array(start + size);
  const view = new DataView(frame.buffer);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (extended === 0 ? size : extended === 2 ? 126 : 127);
  if (extended === 2) view.setUint16(2, size);
  if (extended === 8) view.setBigUint64(2, BigInt(size));
  frame.set(mask, start - 4);
  for (let at = 0; at < size; at += 1) frame[start + at] = (payload[at] as number) ^ (mask[at & 3] as number);
  return frame;
}

/** The payload of a close frame. */
export function writeClose(code: number, reason: string): Uint8Array {
  // 1005 stands for a frame without a code and is never sent.
  if (code === 1005) return new Uint8Array(0);
  const text = new TextEncoder().encode(reason).slice(0, CONTROL_BYTES - 2);
  const payload = new Uint8Array(2 + text.length);
  new DataView(payload.buffer).setUint16(0, code);
  payload.set(text, 2);
  return payload;
}
