/** A server-sent event. */
export interface ServerSentEvent {
  /** The field `event`; `message` if there is none. */
  type: string;
  data: string;
}

/** Collects server-sent events line by line. Ignores comments and the fields `id` and `retry`. */
export class ServerSentEventParser {
  #type = "message";
  #data: string[] = [];

  /** Returns an event if the line ends one. */
  parseLine(line: string): ServerSentEvent | undefined {
    if (line === "") {
      const event = { type: this.#type, data: this.#data.join("\n") };
      const isEmpty = this.#data.length === 0;
      this.#type = "message";
      this.#data = [];
      return isEmpty ? undefined : event;
    }
    const data = fieldValue(line, "data");
    if (data !== undefined) this.#data.push(data);
    this.#type = fieldValue(line, "event") ?? this.#type;
    return undefined;
  }
}

function fieldValue(line: string, name: string): string | undefined {
  if (!line.startsWith(`${name}:`)) return undefined;
  const value = line.slice(name.length + 1);
  return value.startsWith(" ") ? value.slice(1) : value;
}
