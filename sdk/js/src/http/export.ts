import type { Backoff } from "../backoff.js";
import type { DamagedRange } from "../errors.js";
import type { BusEvent } from "../event.js";
import { bodyLines } from "./body-lines.js";
import { type DamageOptions, passDamage } from "./damage.js";
import type { HttpApi } from "./http-api.js";
import { ReadRetry } from "./read-retry.js";

/** Options of `export`. Without `fromTs`, `toTs` and `afterId`, it reads all events that the topic has now. */
export interface ExportOptions extends DamageOptions {
  /** Skips events before this time (milliseconds since 1970). */
  fromTs?: number;
  /** Skips events after this time. Default: now. */
  toTs?: number;
  /** Starts after the event with this id. */
  afterId?: string;
  /** Cancels the export. */
  signal?: AbortSignal;
}

/** A line in the place of events that the server cannot read back. */
interface DamagedLine {
  damaged: DamagedRange;
}

/**
 * Reads a topic as one stream, as fast as the caller takes its events. If the connection is lost, continues after the
 * last event, so that no event is lost or repeated.
 */
export async function* exportEvents<T>(
  api: HttpApi,
  backoff: Backoff,
  topic: string,
  options: ExportOptions,
): AsyncGenerator<BusEvent<T>, void, undefined> {
  const { signal, fromTs, toTs } = options;
  const retry = new ReadRetry(backoff, signal);
  let { afterId } = options;
  for (;;) {
    const query = new URLSearchParams({ topic, damaged: "skip" });
    if (fromTs !== undefined) query.set("fromTs", String(fromTs));
    if (toTs !== undefined) query.set("toTs", String(toTs));
    if (afterId !== undefined) query.set("afterId", afterId);
    try {
      const response = await api.get("/export", query, "application/x-ndjson", signal);
      for await (const line of bodyLines(response, signal)) {
        const event = JSON.parse(line) as BusEvent<T> | DamagedLine;
        if ("damaged" in event) {
          passDamage(options, event.damaged);
          continue;
        }
        retry.progress();
        afterId = event.id;
        yield event;
      }
      return;
    } catch (error) {
      await retry.afterFailure(error);
    }
  }
}
