import { BadAnswerError, DisconnectedError } from "../errors.js";
import { networkCall } from "./http-api.js";
import { LineSplitter } from "./line-splitter.js";

/** Longer than any event that the bus stores. */
const MAX_LINE_CHARACTERS = 32 * 1024 * 1024;

/** Yields the lines of a response body as they arrive. Releases the connection if the caller stops early. */
export async function* bodyLines(response: Response, signal: AbortSignal | undefined): AsyncGenerator<string, void> {
  const { body } = response;
  if (body === null) throw new BadAnswerError("the response has no body");
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const splitter = new LineSplitter(MAX_LINE_CHARACTERS);
  try {
    for (;;) {
      const { done, value } = await networkCall(() => reader.read(), signal);
      if (done) break;
      yield* splitter.split(decoder.decode(value, { stream: true }));
    }
    if (splitter.isMidLine) throw new DisconnectedError("the response ended in the middle of a line");
  } finally {
    // Cancelling fails if the network already did.
    await reader.cancel().catch(() => undefined);
  }
}
