import { DamagedError, type DamagedRange } from "../errors.js";

/** What a read does at events that the server cannot read back. */
export interface DamageOptions {
  /** Called with the events, which the read then skips. Without it, the read throws a `DamagedError`. */
  onDamaged?: (range: DamagedRange) => void;
}

/** Reports damaged events to the caller, or throws if it did not ask for them. */
export function passDamage(options: DamageOptions, range: DamagedRange): void {
  if (options.onDamaged === undefined) throw new DamagedError(range);
  options.onDamaged(range);
}
