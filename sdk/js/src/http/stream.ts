import type { Backoff } from "../backoff.js";
import type { BusEvent } from "../event.js";
import { bodyLines } from "./body-lines.js";
import type { HttpApi } from "./http-api.js";
import { Persistence } from "./persistence.js";
import { type ReadFrom, readFromQuery } from "./replay.js";
import { EventData } from "./server-sent-events.js";

/** What to follow. Without `from`, `ts` and `afterId` what is published from now on. */
export interface StreamOptions extends ReadFrom {
  /** Begins with the first event of the topic, or (if absent) with what is published from now on. */
  from?: "earliest" | "latest";
  /** Ends it. */
  signal?: AbortSignal;
}

/**
 * Follows a topic as it grows, without a group and without acknowledging anything. It does not end by itself: break out
 * of the loop or use the signal. When the connection breaks it goes on behind the last event that was given; before
 * the first one, from where it began, which for `latest` is then later.
 */
export async function* streamEvents<T>(
  api: HttpApi,
  backoff: Backoff,
  topic: string,
  options: StreamOptions,
): AsyncGenerator<BusEvent<T>, void, undefined> {
  const { signal, from } = options;
  const persistence = new Persistence(backoff, signal);
  let query = readFromQuery(topic, options);
  if (from !== undefined) query.set("from", from);
  for (;;) {
    try {
      const response = await api.get("/stream", query, "text/event-stream", signal);
      persistence.progress();
      const data = new EventData();
      for await (const line of bodyLines(response, signal)) {
        const text = data.line(line);
        if (text === undefined) continue;
        const event = JSON.parse(text) as BusEvent<T>;
        query = readFromQuery(topic, { afterId: event.id });
        yield event;
      }
      // The server stops, or the token expired: the next attempt tells.
      await persistence.afterEnd();
    } catch (error) {
      await persistence.afterFailure(error);
    }
  }
}
