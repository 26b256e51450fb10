/** A subscription as the session keeps it through connections. */
export class Binding {
  /** Whether deliveries are to rest. */
  paused = false;
  /** What this connection knows of it. */
  state: "absent" | "asked" | "bound" = "absent";
  /** Whether any connection had it: then its group exists. */
  wasBound = false;
  /** When to ask again, after a refusal that passes. */
  asksAgainAt: number | undefined;
  /** How often in a row it was refused. */
  refusals = 0;

  constructor(
    readonly topic: string,
    readonly group: string,
    readonly options: Readonly<Record<string, unknown>>,
  ) {}

  /** A name for it that no other has. */
  get key(): string {
    return bindingKey(this.topic, this.group);
  }
}

/** The name of a subscription. Neither topic nor group contains a space. */
export function bindingKey(topic: string, group: string): string {
  return `${topic} ${group}`;
}
