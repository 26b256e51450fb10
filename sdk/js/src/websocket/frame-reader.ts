import { CONTROL_BYTES, OPCODE } from "./frame-format.js";

/** A whole message or a control frame of the server. */
export type Incoming =
  | { kind: "text"; text: string }
  | { kind: "ping"; payload: Uint8Array }
  | { kind: "pong" }
  | { kind: "close"; code: number; reason: string };

/** The server broke the protocol; `closeCode` says how. */
export class WebSocketViolation extends Error {
  override readonly name = "WebSocketViolation";

  constructor(
    readonly closeCode: number,
    message: string,
  ) {
    super(message);
  }
}

const protocolError = (message: string) => new WebSocketViolation(1002, message);

/** Close codes that may stand in a frame (RFC 6455, section 7.4). */
const isCloseCode = (code: number) =>
  (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999);

/**
 * Reads the frames of a server from pieces of any size. Holds at most one message of `maxMessageBytes` and what came
 * behind it in one piece. After a {@link WebSocketViolation} it must not be used again.
 */
export class FrameReader {
  readonly #maxMessageBytes: number;
  #pieces: Uint8Array[] = [];
  #held = 0;
  #message: Uint8Array[] = [];
  #messageBytes = 0;
  #inMessage = false;

  constructor(maxMessageBytes: number) {
    this.#maxMessageBytes = maxMessageBytes;
  }

  /** Takes what came, and gives what is complete. */
  read(piece: Uint8Array): Incoming[] {
    this.#pieces.push(piece);
    this.#held += piece.length;
    const incoming: Incoming[] = [];
    for (;;) {
      const frame = this.#nextFrame();
      if (frame === undefined) return incoming;
      const item = this.#understand(frame.fin, frame.opcode, frame.payload);
      if (item !== undefined) incoming.push(item);
    }
  }

  #nextFrame(): { fin: boolean; opcode: number; payload: Uint8Array } | undefined {
    if (this.#held < 2) return undefined;
    const [first, second] = this.#peek(2) as unknown as [number, number];
    if ((first & 0x70) !== 0) throw protocolError("a frame uses an extension that nobody agreed on");
    if ((second & 0x80) !== 0) throw protocolError("a frame of the server is masked");
    const opcode = first & 0x0f;
    const fin = (first & 0x80) !== 0;
    const short = second & 0x7f;
    const header = short < 126 ? 2 : short === 126 ? 4 : 10;
    this.#checkControl(opcode, fin, short);
    if (this.#held < header) return undefined;
    const size = short < 126 ? short : this.#extendedSize(header);
    if (opcode < 8 && this.#messageBytes + size > this.#maxMessageBytes) {
      throw new WebSocketViolation(1009, `a message is larger than ${this.#maxMessageBytes} bytes`);
    }
    if (this.#held < header + size) return undefined;
    const payload = this.#take(header + size).subarray(header);
    return { fin, opcode, payload };
  }

  #checkControl(opcode: number, fin: boolean, size: number): void {
    if (opcode < 8) return;
    if (!fin) throw protocolError("a control frame is in fragments");
    if (size > CONTROL_BYTES) throw protocolError("a control frame is too long");
  }

  #extendedSize(header: number): number {
    const head = this.#peek(header);
    const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
    if (header === 4) return view.getUint16(2);
    const size = view.getBigUint64(2);
    return size > BigInt(Number.MAX_SAFE_INTEGER) ? Number.POSITIVE_INFINITY : Number(size);
  }

  #understand(fin: boolean, opcode: number, payload: Uint8Array): Incoming | undefined {
    switch (opcode) {
      case OPCODE.ping:
        return { kind: "ping", payload };
      case OPCODE.pong:
        return { kind: "pong" };
      case OPCODE.close:
        return readClose(payload);
      case OPCODE.binary:
        throw new WebSocketViolation(1003, "a binary message came, and only texts are understood");
      case OPCODE.text:
        if (this.#inMessage) throw protocolError("a message begins inside another");
        break;
      case OPCODE.continuation:
        if (!this.#inMessage) throw protocolError("a fragment belongs to no message");
        break;
      default:
        throw protocolError(`no frame has the opcode ${opcode}`);
    }
    this.#inMessage = !fin;
    // Copied if more is to come: a fragment would otherwise keep all of the piece that it came in.
    // Empty ones are not kept: there is no limit to their number.
    if (payload.length > 0) this.#message.push(fin ? payload : payload.slice());
    this.#messageBytes += payload.length;
    if (!fin) return undefined;
    const text = decode(join(this.#message, this.#messageBytes));
    this.#message = [];
    this.#messageBytes = 0;
    return { kind: "text", text };
  }

  /** The first `size` bytes, which stay. */
  #peek(size: number): Uint8Array {
    const first = this.#pieces[0] as Uint8Array;
    if (first.length < size) this.#pieces = [join(this.#pieces, this.#held)];
    return (this.#pieces[0] as Uint8Array).subarray(0, size);
  }

  #take(size: number): Uint8Array {
    const taken = this.#peek(size);
    const rest = (this.#pieces[0] as Uint8Array).subarray(size);
    if (rest.length > 0) this.#pieces[0] = rest;
    else this.#pieces.shift();
    this.#held -= size;
    return taken;
  }
}

function readClose(payload: Uint8Array): Incoming {
  if (payload.length === 0) return { kind: "close", code: 1005, reason: "" };
  if (payload.length === 1) throw protocolError("a close frame has half a code");
  const code = ((payload[0] as number) << 8) | (payload[1] as number);
  if (!isCloseCode(code)) throw protocolError(`${code} is no code to close with`);
  return { kind: "close", code, reason: decode(payload.subarray(2)) };
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new WebSocketViolation(1007, "a text is not UTF-8");
  }
}

function join(pieces: Uint8Array[], size: number): Uint8Array {
  if (pieces.length === 1) return pieces[0] as Uint8Array;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
