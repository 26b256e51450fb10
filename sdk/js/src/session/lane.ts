import type { Request } from "./request.js";

/**
 * An ordered queue of requests, such as the publishes to one topic. After a temporary refusal (`rate_limited`,
 * `storage_unavailable`) the lane waits and then sends a single request, so that the server does not refuse a full window
 * over and over; every answer allows one more request in flight.
 */
export class Lane {
  readonly #queue: Request[] = [];
  #inFlight = 0;
  #maxInFlight = Number.POSITIVE_INFINITY;
  #blockedUntil = 0;
  #refusals = 0;

  /** Consecutive temporary refusals. */
  get refusals(): number {
    return this.#refusals;
  }

  /** When the next request may be sent, if only time holds it back. */
  get sendsAt(): number | undefined {
    return this.#queue.length > 0 && this.#inFlight < this.#maxInFlight ? this.#blockedUntil : undefined;
  }

  /** True if no request is queued or in flight. */
  get isEmpty(): boolean {
    return this.#queue.length === 0 && this.#inFlight === 0;
  }

  /** Returns `true` if the lane is empty and not blocked, so that it can be deleted. */
  isIdle(now: number): boolean {
    return this.isEmpty && now >= this.#blockedUntil;
  }

  /** Queues a request by its number: requests to be sent again go before those that were never sent. */
  enqueue(request: Request): void {
    let index = this.#queue.length;
    while (index > 0 && (this.#queue[index - 1] as Request).number > request.number) index -= 1;
    this.#queue.splice(index, 0, request);
  }

  /** Takes the next request that may be sent now, which then counts as in flight. */
  dequeue(now: number): Request | undefined {
    if (now < this.#blockedUntil || this.#inFlight >= this.#maxInFlight) return undefined;
    const request = this.#queue.shift();
    if (request) this.#inFlight += 1;
    return request;
  }

  /** Records that a request succeeded or was refused permanently. */
  answered(): void {
    this.#inFlight -= 1;
    this.#refusals = 0;
    this.#maxInFlight += 1;
  }

  /** Records a temporary refusal. The request is sent again no earlier than `until`. */
  refused(request: Request, until: number): void {
    this.#inFlight -= 1;
    this.#refusals += 1;
    this.#maxInFlight = 1;
    this.#blockedUntil = Math.max(this.#blockedUntil, until);
    if (!request.abandoned) this.enqueue(request);
  }

  /** Removes a queued request. */
  remove(request: Request): void {
    const index = this.#queue.indexOf(request);
    if (index >= 0) this.#queue.splice(index, 1);
  }

  /** Records that the connection was lost. Removes and returns the queued requests that must not be sent again. */
  disconnected(): Request[] {
    this.#inFlight = 0;
    const lost = this.#queue.filter((request) => !request.resend);
    for (const request of lost) this.remove(request);
    return lost;
  }

  /** Removes and returns all queued requests. */
  clear(): Request[] {
    this.#inFlight = 0;
    return this.#queue.splice(0);
  }
}
