import type { PrombusError } from "../errors.js";
import type { Binding } from "./binding.js";
import type { EventFrame, OkFrame } from "./frames.js";
import type { Request } from "./request.js";

/** The state of a client's connection. `disconnected` means that it waits before it reconnects; `closed` is final. */
export type ConnectionState = "connecting" | "connected" | "disconnected" | "closed";

/** What a session asks its connection to do. */
export type Effect =
  | { kind: "open" }
  | { kind: "send"; text: string }
  | { kind: "hang-up"; code: number; reason: string }
  | { kind: "state"; state: ConnectionState; error?: PrombusError }
  | { kind: "answered"; request: Request; answer: OkFrame }
  | { kind: "failed"; request: Request; error: PrombusError }
  | { kind: "bound"; binding: Binding }
  | { kind: "unbound"; binding: Binding }
  | { kind: "refused"; binding: Binding; error: PrombusError }
  | { kind: "delivered"; binding: Binding; frame: EventFrame };
