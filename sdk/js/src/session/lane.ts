import type { Request } from "./request.js";

/**
 * Requests of one topic, in their order. When one is refused for a while (`rate_limited`, `storage_unavailable`), the
 * lane waits and then begins with a single request, so that a full window is not refused again and again: each answer
 * lets one more fly.
 */
export class Lane {
  readonly #waiting: Request[] = [];
  #flying = 0;
  #mayFly = Number.POSITIVE_INFINITY;
  #closedUntil = 0;
  #refusals = 0;

  /** How often in a row requests of this lane were refused. */
  get refusals(): number {
    return this.#refusals;
  }

  /** When the next request may go, if one waits for time alone. */
  get opensAt(): number | undefined {
    return this.#waiting.length > 0 && this.#flying < this.#mayFly ? this.#closedUntil : undefined;
  }

  /** Nothing of it is owed to anybody. */
  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#flying === 0;
  }

  /** Nothing of it is owed to anybody, and no patience is to be remembered. */
  isIdle(now: number): boolean {
    return this.isEmpty && now >= this.#closedUntil;
  }

  /** Puts a request where its number says: those that come back go before those that never went. */
  put(request: Request): void {
    let place = this.#waiting.length;
    while (place > 0 && (this.#waiting[place - 1] as Request).number > request.number) place -= 1;
    this.#waiting.splice(place, 0, request);
  }

  /** Takes the next request that may be sent now. */
  take(now: number): Request | undefined {
    if (now < this.#closedUntil || this.#flying >= this.#mayFly) return undefined;
    const request = this.#waiting.shift();
    if (request) this.#flying += 1;
    return request;
  }

  /** A request of this lane was done, or refused for good. */
  answered(): void {
    this.#flying -= 1;
    this.#refusals = 0;
    this.#mayFly += 1;
  }

  /** A request of this lane was refused for now and goes again from `until` on. */
  refused(request: Request, until: number): void {
    this.#flying -= 1;
    this.#refusals += 1;
    this.#mayFly = 1;
    this.#closedUntil = Math.max(this.#closedUntil, until);
    if (!request.abandoned) this.put(request);
  }

  /** Forgets a request that waits. */
  remove(request: Request): void {
    const place = this.#waiting.indexOf(request);
    if (place >= 0) this.#waiting.splice(place, 1);
  }

  /** The connection is gone: nothing flies. Gives those that do not survive that. */
  grounded(): Request[] {
    this.#flying = 0;
    const lost = this.#waiting.filter((request) => !request.survives);
    for (const request of lost) this.remove(request);
    return lost;
  }

  /** Takes all that waits. */
  clear(): Request[] {
    this.#flying = 0;
    return this.#waiting.splice(0);
  }
}
