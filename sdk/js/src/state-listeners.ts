import type { StateListener } from "./connection.js";
import { Deferred } from "./deferred.js";
import { type PrombusError, TimeoutError } from "./errors.js";
import type { ConnectionState } from "./session/effect.js";

/** Passes changes of the connection's state on to the listeners of a client. */
export class StateListeners {
  readonly #listeners = new Set<StateListener>();
  readonly #ended = new Deferred<PrombusError | undefined>();
  #lastError: PrombusError | undefined;

  /** Resolves when the connection is closed for good. */
  get ended(): Promise<PrombusError | undefined> {
    return this.#ended.promise;
  }

  /** Adds a listener and returns the function that removes it. */
  add(listener: StateListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  notify(state: ConnectionState, error: PrombusError | undefined): void {
    this.#lastError = error ?? this.#lastError;
    for (const listener of [...this.#listeners]) {
      try {
        listener(state, error);
      } catch (thrown) {
        // A faulty listener must not stop the connection; its error becomes an uncaught exception.
        queueMicrotask(() => {
          throw thrown;
        });
      }
    }
    if (state === "closed") this.#ended.resolve(error);
  }

  /** Resolves on the first connection. Rejects when the connection is closed or `signal` aborts. */
  connected(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (how: () => void) => {
        remove();
        signal?.removeEventListener("abort", abort);
        how();
      };
      const abort = () => settle(() => reject(withCause(signal?.reason, this.#lastError)));
      const remove = this.add((state, error) => {
        if (state === "connected") settle(resolve);
        if (state === "closed") settle(() => reject(error));
      });
      signal?.addEventListener("abort", abort, { once: true });
      if (signal?.aborted) abort();
    });
  }
}

/** Adds to a timeout what failed last. */
function withCause(reason: unknown, cause: PrombusError | undefined): unknown {
  if (!(reason instanceof TimeoutError) || cause === undefined) return reason;
  return new TimeoutError(`${reason.message}: ${cause.message}`, { cause });
}
