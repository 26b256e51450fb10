import type { Backoff } from "../backoff.js";
import type { BusEvent } from "../event.js";
import { bodyLines } from "./body-lines.js";
import type { HttpApi } from "./http-api.js";
import { Persistence } from "./persistence.js";

/** What to export. Without `fromTs`, `toTs` and `afterId` all that the topic holds now. */
export interface ExportOptions {
  /** Only events of this time (milliseconds since 1970) or later. */
  fromTs?: number;
  /** Only events of this time or earlier. Now if absent. */
  toTs?: number;
  /** Only events behind that of this id. */
  afterId?: string;
  /** Calls it off. */
  signal?: AbortSignal;
}

/**
 * Reads a topic as one stream, as fast as its events are taken. When the connection breaks it goes on behind the last
 * event that was given: nothing is lost or doubled.
 */
export async function* exportEvents<T>(
  api: HttpApi,
  backoff: Backoff,
  topic: string,
  options: ExportOptions,
): AsyncGenerator<BusEvent<T>, void, undefined> {
  const { signal, fromTs, toTs } = options;
  const persistence = new Persistence(backoff, signal);
  let { afterId } = options;
  for (;;) {
    const query = new URLSearchParams({ topic });
    if (fromTs !== undefined) query.set("fromTs", String(fromTs));
    if (toTs !== undefined) query.set("toTs", String(toTs));
    if (afterId !== undefined) query.set("afterId", afterId);
    try {
      const response = await api.get("/export", query, "application/x-ndjson", signal);
      for await (const line of bodyLines(response, signal)) {
        const event = JSON.parse(line) as BusEvent<T>;
        persistence.progress();
        afterId = event.id;
        yield event;
      }
      return;
    } catch (error) {
      await persistence.afterFailure(error);
    }
  }
}
