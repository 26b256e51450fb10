import { DisconnectedError, PrombusError, RefusedError } from "../errors.js";

/** Asks the HTTP side of the bus, with a token where there is one. */
export class HttpApi {
  readonly #base: URL;
  readonly #token: () => Promise<string | undefined>;

  constructor(base: URL, token: () => Promise<string | undefined>) {
    this.#base = base;
    this.#token = token;
  }

  /** The answer to a GET, when it is 200. Refusals are `RefusedError`, failures of the network `DisconnectedError`. */
  async get(path: string, query: URLSearchParams, accept: string, signal: AbortSignal | undefined): Promise<Response> {
    const url = new URL(path, this.#base);
    url.search = query.toString();
    const token = await this.#token();
    const headers: Record<string, string> = { Accept: accept };
    if (token !== undefined) headers.Authorization = `Bearer ${token}`;
    const response = await network(() => fetch(url, { headers, signal: signal ?? null, cache: "no-store" }), signal);
    if (!response.ok) throw await refusal(response, signal);
    return response;
  }
}

/** Runs what uses the network, and tells its failures from the caller's own abort. */
export async function network<T>(work: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof PrombusError) throw error;
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    throw new DisconnectedError(`the bus cannot be reached: ${cause instanceof Error ? cause.message : cause}`, {
      cause: error,
    });
  }
}

async function refusal(response: Response, signal: AbortSignal | undefined): Promise<RefusedError> {
  const text = await network(() => response.text(), signal);
  const seconds = Number(response.headers.get("Retry-After") ?? Number.NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
  try {
    const { error, code } = JSON.parse(text) as { error: string; code: string };
    if (typeof code === "string") return new RefusedError(code, error, retryAfterMs);
  } catch {
    // No answer of the bus itself; a proxy may be in between.
  }
  const code = response.status >= 500 ? "storage_unavailable" : "internal";
  return new RefusedError(code, `${response.status} ${response.statusText}: ${text.slice(0, 200)}`, retryAfterMs);
}
