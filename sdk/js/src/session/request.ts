import { withCorr } from "./frames.js";

/** How the session sends a request. */
export interface RequestOptions {
  /** Requests in the same lane are sent in order and wait together after a temporary refusal. */
  lane: string;
  /** Sends the request again on the next connection if it was not answered. For idempotent requests only. */
  resend: boolean;
  /** Sends the request again after a temporary refusal. */
  retry: boolean;
}

/** A frame that a caller sent and whose answer the caller awaits. */
export class Request {
  readonly text: string;
  readonly lane: string;
  readonly resend: boolean;
  readonly retry: boolean;
  /** The caller no longer awaits the answer. */
  abandoned = false;

  constructor(
    readonly number: number,
    body: string,
    options: RequestOptions,
  ) {
    this.text = withCorr(body, this.corr);
    this.lane = options.lane;
    this.resend = options.resend;
    this.retry = options.retry;
  }

  /** The correlation id, which the answer repeats. */
  get corr(): string {
    return String(this.number);
  }
}
