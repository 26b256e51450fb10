import type { BusEvent } from "../event.js";

/** What is done around a handler. `Result` is what the handler returns. */
export interface Strategy<Result> {
  /** Whether the event was done before: then it is acknowledged and not handled. Absent where that is not asked. */
  wasDone?(event: BusEvent): Promise<boolean>;
  /** Whether the handler finished here before and only the end is to be told, by {@link finish} without a result. */
  remembers(id: string): boolean;
  /** Tells the bus that the handler finished. */
  finish(event: BusEvent, result: Result | undefined): Promise<void>;
  /** The handler finished, but the event is not lent to us any more. */
  finishUnleased(event: BusEvent): Promise<void>;
}
