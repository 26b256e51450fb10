import type { RefusedError } from "../errors.js";
import type { OkFrame } from "./frames.js";
import type { Request } from "./request.js";

/** How long the server may take for an answer before the connection counts as lost. */
const ANSWER_TIMEOUT_MS = 30_000;
/** How long the server may be silent before a subscriber probes it. */
const IDLE_PROBE_MS = 30_000;

/** A frame that was sent and not answered: a caller's request, or a frame of the session itself with a callback. */
export interface PendingAnswer {
  readonly corr: string;
  readonly request?: Request;
  readonly done?: (outcome: OkFrame | RefusedError, now: number) => void;
}

/** The unanswered frames of a connection. The server answers in order, so they form a queue. */
export class PendingAnswers {
  readonly #queue: PendingAnswer[] = [];
  #receivedAt = 0;
  /** Since when the server owes the next answer. */
  #waitingSince = 0;

  get isEmpty(): boolean {
    return this.#queue.length === 0;
  }

  /** When the connection counts as lost unless the server sends something. */
  get timeoutAt(): number {
    return Math.max(this.#waitingSince, this.#receivedAt) + ANSWER_TIMEOUT_MS;
  }

  /** When an idle server is to be probed. */
  get probeAt(): number {
    return this.#receivedAt + IDLE_PROBE_MS;
  }

  /** Records that the server sent something. */
  received(now: number): void {
    this.#receivedAt = now;
  }

  push(pending: PendingAnswer, now: number): void {
    if (this.#queue.length === 0) this.#waitingSince = now;
    this.#queue.push(pending);
  }

  /** Takes the frame that the answer received `now` belongs to. */
  shift(now: number): PendingAnswer | undefined {
    this.#waitingSince = now;
    return this.#queue.shift();
  }

  /** Puts the frame back that {@link shift} returned last. */
  unshift(pending: PendingAnswer): void {
    this.#queue.unshift(pending);
  }

  /** Removes all frames and returns the requests among them whose callers still wait. */
  takeRequests(): Request[] {
    return this.#queue.splice(0).flatMap(({ request }) => (request && !request.abandoned ? [request] : []));
  }
}
