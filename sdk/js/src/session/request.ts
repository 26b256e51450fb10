import { withCorr } from "./frames.js";

/** What a request is about, for the session that carries it. */
export interface RequestOptions {
  /** Requests of one lane keep their order and wait together when the bus asks for patience. */
  lane: string;
  /** Sent again, unchanged, on the next connection if it had no answer. Only for what may safely be done twice. */
  survives: boolean;
  /** Tried again when the bus refuses it in a way that passes. */
  retries: boolean;
}

/** One frame and what is owed to whoever sent it. */
export class Request {
  readonly text: string;
  readonly lane: string;
  readonly survives: boolean;
  readonly retries: boolean;
  /** Nobody waits for the answer any more. */
  abandoned = false;

  constructor(
    readonly number: number,
    body: string,
    options: RequestOptions,
  ) {
    this.text = withCorr(body, this.corr);
    this.lane = options.lane;
    this.survives = options.survives;
    this.retries = options.retries;
  }

  /** What its answer repeats. */
  get corr(): string {
    return String(this.number);
  }
}
