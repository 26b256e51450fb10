import { BadAnswerError, DisconnectedError } from "../errors.js";
import { network } from "./http-api.js";
import { LineSplitter } from "./lines.js";

/** Longer than any event that the bus stores. */
const MAX_LINE = 32 * 1024 * 1024;

/** The lines of a body as they come. Whoever stops early lets go of the connection. */
export async function* bodyLines(response: Response, signal: AbortSignal | undefined): AsyncGenerator<string, void> {
  const { body } = response;
  if (body === null) throw new BadAnswerError("the answer has no body");
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const splitter = new LineSplitter(MAX_LINE);
  try {
    for (;;) {
      const { done, value } = await network(() => reader.read(), signal);
      if (done) break;
      yield* splitter.split(decoder.decode(value, { stream: true }));
    }
    if (splitter.isMidLine) throw new DisconnectedError("the answer ends in the middle of a line");
  } finally {
    // The network may have failed already; then there is nothing to let go of.
    await reader.cancel().catch(() => undefined);
  }
}
