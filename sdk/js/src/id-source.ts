/** Fills an array with random bytes. */
export type FillRandom = (bytes: Uint8Array<ArrayBuffer>) => void;

const COUNTER_END = 1 << 12;

/**
 * Makes UUIDs of version 7 that rise, whatever the clock does: 48 bits of time, then a counter of 12 bits that begins
 * anew with each millisecond, then chance. The bus finds such ids without looking them up.
 */
export class IdSource {
  readonly #now: () => number;
  readonly #fillRandom: FillRandom;
  #lastMs = 0;
  #counter = 0;

  constructor(now: () => number, fillRandom: FillRandom) {
    this.#now = now;
    this.#fillRandom = fillRandom;
  }

  /** The next id; as text it is larger than all before it. */
  next(): string {
    const bytes = new Uint8Array(16);
    this.#fillRandom(bytes);
    const view = new DataView(bytes.buffer);
    const now = this.#now();
    if (now > this.#lastMs) {
      this.#lastMs = now;
      // Half of the counter is left for more ids of this millisecond.
      this.#counter = view.getUint16(6) & (COUNTER_END / 2 - 1);
    } else if (++this.#counter === COUNTER_END) {
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
