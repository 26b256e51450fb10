import type { BusEvent } from "../event.js";

/** What a consumer does before and after a handler. `Result` is what the handler returns. */
export interface DeliverySemantics<Result> {
  /** Returns `true` if the event was handled before: it is acknowledged without its handler. Absent if not checked. */
  isMarked?(event: BusEvent): Promise<boolean>;
  /** Returns `true` if the handler finished in this process and only {@link complete} has to be repeated. */
  finishedHere(id: string): boolean;
  /** Reports to the bus that the handler finished. */
  complete(event: BusEvent, result: Result | undefined): Promise<void>;
  /** Called instead of {@link complete} if the lease was lost while the handler ran. */
  completeWithoutLease(event: BusEvent): Promise<void>;
}
