import type { Backoff } from "../backoff.js";
import { BadAnswerError, type DamagedRange } from "../errors.js";
import type { BusEvent } from "../event.js";
import { type DamageOptions, passDamage } from "./damage.js";
import { type HttpApi, networkCall } from "./http-api.js";
import { ReadRetry } from "./read-retry.js";

/** Where a read starts. Default: with the first event of the topic. */
export interface ReadFrom {
  /** Starts with the first event at this time (milliseconds since 1970) or later. */
  ts?: number;
  /** Starts after the event with this id. */
  afterId?: string;
}

/** Options of `replay`. */
export interface ReplayOptions extends ReadFrom, DamageOptions {
  /** The number of events per request, from 1 to 10,000. Default: 1000. */
  pageSize?: number;
  /** Cancels the replay. */
  signal?: AbortSignal;
}

interface Page<T> {
  events: BusEvent<T>[];
  damaged?: DamagedRange;
  next: string | null;
}

/** Builds the query parameters that select the topic and where the read starts. */
export function readFromQuery(topic: string, { ts, afterId }: ReadFrom): URLSearchParams {
  if (ts !== undefined && afterId !== undefined) throw new TypeError("set either ts or afterId, not both");
  const query = new URLSearchParams({ topic });
  if (ts !== undefined) query.set("ts", String(ts));
  if (afterId !== undefined) query.set("afterId", afterId);
  return query;
}

/** Reads a topic page by page, up to its end. Retries pages that could not be read. */
export async function* replay<T>(
  api: HttpApi,
  backoff: Backoff,
  topic: string,
  options: ReplayOptions,
): AsyncGenerator<BusEvent<T>, void, undefined> {
  const { signal } = options;
  const retry = new ReadRetry(backoff, signal);
  let query = readFromQuery(topic, options);
  if (options.pageSize !== undefined) query.set("limit", String(options.pageSize));
  for (;;) {
    let page: Page<T>;
    try {
      const response = await api.get("/replay", query, "application/json", signal);
      page = (await networkCall(() => response.json(), signal)) as Page<T>;
    } catch (error) {
      await retry.afterFailure(error);
      continue;
    }
    retry.progress();
    yield* page.events;
    if (page.damaged !== undefined) passDamage(options, page.damaged);
    if (page.next === null) return;
    if (page.next === query.toString()) throw new BadAnswerError("the next page is the same page");
    query = new URLSearchParams(page.next);
  }
}
