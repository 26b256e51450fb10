import type { Backoff } from "../backoff.js";
import type { BusEvent } from "../event.js";
import { type HttpApi, network } from "./http-api.js";
import { Persistence } from "./persistence.js";

/** Where reading begins: with the first event, with the first of a time or later, or behind an event. */
export interface ReadFrom {
  /** Begins with the first event of this time (milliseconds since 1970) or later. */
  ts?: number;
  /** Begins behind the event of this id. */
  afterId?: string;
}

/** What to replay. Without `ts` and `afterId` all that the topic holds. */
export interface ReplayOptions extends ReadFrom {
  /** Events that are asked for at a time: 1 to 10,000. 1000 if absent. */
  pageSize?: number;
  /** Calls it off. */
  signal?: AbortSignal;
}

interface Page<T> {
  events: BusEvent<T>[];
  next: string | null;
}

/** The parameters that say where reading begins. */
export function readFromQuery(topic: string, { ts, afterId }: ReadFrom): URLSearchParams {
  if (ts !== undefined && afterId !== undefined) throw new TypeError("say either ts or afterId, not both");
  const query = new URLSearchParams({ topic });
  if (ts !== undefined) query.set("ts", String(ts));
  if (afterId !== undefined) query.set("afterId", afterId);
  return query;
}

/** Reads a topic by pages, up to its end. A page that could not be had is asked for again. */
export async function* replay<T>(
  api: HttpApi,
  backoff: Backoff,
  topic: string,
  options: ReplayOptions,
): AsyncGenerator<BusEvent<T>, void, undefined> {
  const { signal } = options;
  const persistence = new Persistence(backoff, signal);
  let query = readFromQuery(topic, options);
  if (options.pageSize !== undefined) query.set("limit", String(options.pageSize));
  for (;;) {
    let page: Page<T>;
    try {
      const response = await api.get("/replay", query, "application/json", signal);
      page = (await network(() => response.json(), signal)) as Page<T>;
    } catch (error) {
      await persistence.afterFailure(error);
      continue;
    }
    persistence.progress();
    yield* page.events;
    if (page.next === null) return;
    query = new URLSearchParams(page.next);
  }
}
