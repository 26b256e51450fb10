/** Divides pieces of text into lines without their ends (`\n` or `\r\n`). A last line without an end is not given. */
export class LineSplitter {
  readonly #maxCharacters: number;
  #rest = "";

  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters;
  }

  /** Whether a line has begun that did not end. */
  get isMidLine(): boolean {
    return this.#rest.length > 0;
  }

  /** Takes a piece and gives the lines that ended in it. */
  split(piece: string): string[] {
    const lines = piece.split("\n");
    const last = lines.pop() as string;
    if (lines.length === 0) this.#rest += last;
    else {
      lines[0] = this.#rest + lines[0];
      this.#rest = last;
    }
    if (this.#rest.length > this.#maxCharacters) throw new RangeError("a line is too long to be an event");
    return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  }
}
