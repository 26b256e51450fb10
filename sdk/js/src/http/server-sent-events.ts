/** Collects the `data` of server-sent events line by line. Ignores comments and other fields. */
export class ServerSentEventParser {
  #data: string[] = [];

  /** Returns the data of an event if the line ends one. */
  parseLine(line: string): string | undefined {
    if (line === "") {
      const data = this.#data;
      this.#data = [];
      return data.length > 0 ? data.join("\n") : undefined;
    }
    if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    return undefined;
  }
}
