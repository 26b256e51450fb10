/** Puts the `data` of server-sent events together, line by line. Comments and other fields are passed over. */
export class EventData {
  #data: string[] = [];

  /** Takes a line, and gives the data of an event where it ends one. */
  line(line: string): string | undefined {
    if (line === "") {
      const data = this.#data;
      this.#data = [];
      return data.length > 0 ? data.join("\n") : undefined;
    }
    if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    return undefined;
  }
}
