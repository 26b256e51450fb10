/** Fills an array with random bytes. */
export type FillRandom = (bytes: Uint8Array<ArrayBuffer>) => void;

const COUNTER_LIMIT = 1 << 12;

/**
 * Generates version 7 UUIDs that increase whatever the clock does: 48 bits of time, a 12-bit counter that restarts every
 * millisecond, then random bits. The bus can tell that such an id is new without looking it up.
 */
export class IdGenerator {
  readonly #now: () => number;
  readonly #fillRandom: FillRandom;
  #lastMs = 0;
  #counter = 0;

  constructor(now: () => number, fillRandom: FillRandom) {
    this.#now = now;
    this.#fillRandom = fillRandom;
  }

  /** Returns the next id, which sorts after all earlier ones. */
  next(): string {
    const bytes = new Uint8Array(16);
    this.#fillRandom(bytes);
    const view = new DataView(bytes.buffer);
    const now = this.#now();
    if (now > this.#lastMs) {
      this.#lastMs = now;
      // The random start leaves half of the counter for further ids of this millisecond.
      this.#counter = view.getUint16(6) & (COUNTER_LIMIT / 2 - 1);
    } else if (++this.#counter === COUNTER_LIMIT) {
      this.#lastMs += 1;
      this.#counter = 0;
    }
    view.setUint32(0, Math.floor(this.#lastMs / 0x1_0000));
    view.setUint16(4, this.#lastMs % 0x1_0000);
    view.setUint16(6, 0x7000 | this.#counter);
    view.setUint8(8, 0x80 | (view.getUint8(8) & 0x3f));
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
  }
}
