/** A subscription that the session renews on every connection. */
export class Binding {
  paused = false;
  /** The state on the present connection. */
  state: "unbound" | "requested" | "bound" = "unbound";
  /** Whether an earlier connection was subscribed; then the group exists. */
  wasBound = false;
  /** When to subscribe again after a temporary refusal. */
  retryAt: number | undefined;
  /** Consecutive temporary refusals. */
  refusals = 0;

  constructor(
    readonly topic: string,
    readonly group: string,
    readonly options: Readonly<Record<string, unknown>>,
  ) {}

  get key(): string {
    return bindingKey(this.topic, this.group);
  }
}

/** Returns a key that is unique per topic and group: neither contains a space. */
export function bindingKey(topic: string, group: string): string {
  return `${topic} ${group}`;
}
