/** Splits a stream of text into lines, without their ends (`\n` or `\r\n`). Omits a last line that has no end. */
export class LineSplitter {
  readonly #maxCharacters: number;
  #rest = "";

  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters;
  }

  /** True if the text so far ends in the middle of a line. */
  get isMidLine(): boolean {
    return this.#rest.length > 0;
  }

  /** Adds a chunk of text and returns the lines that it completes. */
  split(chunk: string): string[] {
    const lines = chunk.split("\n");
    const last = lines.pop() as string;
    if (lines.length === 0) this.#rest += last;
    else {
      lines[0] = this.#rest + lines[0];
      this.#rest = last;
    }
    if (this.#rest.length > this.#maxCharacters) throw new RangeError("the line is too long to be an event");
    return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  }
}
