import type { PrombusError } from "../errors.js";
import type { Binding } from "./binding.js";
import type { EventFrame, OkFrame } from "./frames.js";
import type { Request } from "./request.js";

/** How the connection is. */
export type ConnectionState = "connecting" | "connected" | "disconnected" | "closed";

/** What a session wants done by whoever has sockets and callers. */
export type Effect =
  | { kind: "open" }
  | { kind: "send"; text: string }
  | { kind: "hang-up"; code: number; reason: string }
  | { kind: "state"; state: ConnectionState; because?: PrombusError }
  | { kind: "answered"; request: Request; answer: OkFrame }
  | { kind: "failed"; request: Request; error: PrombusError }
  | { kind: "bound"; binding: Binding }
  | { kind: "unbound"; binding: Binding }
  | { kind: "refused"; binding: Binding; error: PrombusError }
  | { kind: "delivered"; binding: Binding; frame: EventFrame };
