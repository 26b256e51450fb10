import { DisconnectedError, PrombusError, RefusedError } from "../errors.js";

/** The HTTP API of the bus. */
export class HttpApi {
  readonly #base: URL;
  readonly #token: () => Promise<string | undefined>;

  constructor(base: URL, token: () => Promise<string | undefined>) {
    this.#base = base;
    this.#token = token;
  }

  /** Sends a GET request. Throws `RefusedError` if the bus refuses, and `DisconnectedError` if the network fails. */
  async get(path: string, query: URLSearchParams, accept: string, signal: AbortSignal | undefined): Promise<Response> {
    const url = new URL(path, this.#base);
    url.search = query.toString();
    const token = await this.#token();
    const headers: Record<string, string> = { Accept: accept };
    if (token !== undefined) headers.Authorization = `Bearer ${token}`;
    const response = await networkCall(
      () => fetch(url, { headers, signal: signal ?? null, cache: "no-store" }),
      signal,
    );
    if (!response.ok) throw await refusal(response, signal);
    return response;
  }
}

/** Converts network failures to `DisconnectedError`, and the failure after an abort to the reason of the signal. */
export async function networkCall<T>(work: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof PrombusError) throw error;
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    throw new DisconnectedError(`cannot reach the bus: ${cause instanceof Error ? cause.message : cause}`, {
      cause: error,
    });
  }
}

async function refusal(response: Response, signal: AbortSignal | undefined): Promise<RefusedError> {
  const text = await networkCall(() => response.text(), signal);
  const seconds = Number(response.headers.get("Retry-After") ?? Number.NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
  try {
    const { error, code } = JSON.parse(text) as { error: string; code: string };
    if (typeof code === "string") return new RefusedError(code, error, retryAfterMs);
  } catch {
    // The response comes from something else, such as a proxy.
  }
  const code = response.status >= 500 ? "storage_unavailable" : "internal";
  return new RefusedError(code, `${response.status} ${response.statusText}: ${text.slice(0, 200)}`, retryAfterMs);
}
