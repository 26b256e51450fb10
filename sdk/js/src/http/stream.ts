import type { Backoff } from "../backoff.js";
import type { DamagedRange } from "../errors.js";
import type { BusEvent } from "../event.js";
import { bodyLines } from "./body-lines.js";
import { type DamageOptions, passDamage } from "./damage.js";
import type { HttpApi } from "./http-api.js";
import { ReadRetry } from "./read-retry.js";
import { type ReadFrom, readFromQuery } from "./replay.js";
import { ServerSentEventParser } from "./server-sent-events.js";

/** Events that retention removed before the stream could read them. */
export interface StreamGap {
  /** The `seq` of the next event. With the `seq` of the event before, it tells what is missing. */
  next_seq: number;
}

/** Options of `stream`. */
export interface StreamOptions extends ReadFrom, DamageOptions {
  /** Starts with the first event of the topic (`earliest`), or with events published from now on (the default). */
  from?: "earliest" | "latest";
  /**
   * Called when retention has removed events that the stream has not read, such as the event of `afterId` or of the last
   * one before a lost connection. The stream then continues with the first event that is kept, also without this option.
   */
  onGap?: (gap: StreamGap) => void;
  /** Ends the stream. */
  signal?: AbortSignal;
}

/**
 * Follows a topic as it grows, without a consumer group or acknowledgements. Runs until the caller leaves the loop or the
 * signal aborts. If the connection is lost, continues after the last event; before the first event it starts over, which
 * for `latest` means later. Events that the topic no longer has are skipped, which `onGap` reports.
 */
export async function* streamEvents<T>(
  api: HttpApi,
  backoff: Backoff,
  topic: string,
  options: StreamOptions,
): AsyncGenerator<BusEvent<T>, void, undefined> {
  const { signal, from } = options;
  const retry = new ReadRetry(backoff, signal);
  let query = readFromQuery(topic, options);
  if (from !== undefined) query.set("from", from);
  for (;;) {
    try {
      const response = await api.get("/stream", query, "text/event-stream", signal);
      retry.progress();
      const parser = new ServerSentEventParser();
      for await (const line of bodyLines(response, signal)) {
        const sent = parser.parseLine(line);
        if (sent?.type === "damaged") passDamage(options, JSON.parse(sent.data) as DamagedRange);
        if (sent?.type === "gap") options.onGap?.(JSON.parse(sent.data) as StreamGap);
        if (sent?.type !== "message") continue;
        const event = JSON.parse(sent.data) as BusEvent<T>;
        query = readFromQuery(topic, { afterId: event.id });
        yield event;
      }
      // The server is shutting down or the token has expired; the next attempt will show.
      await retry.afterEnd();
    } catch (error) {
      await retry.afterFailure(error);
    }
  }
}
