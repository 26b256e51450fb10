/**
 * Sends ids in batches, one batch at a time: ids added while a batch is in flight go together in the next one. A fast
 * consumer thus sends few frames, and a slow one does not wait.
 */
export class IdBatcher<Answer> {
  readonly #send: (ids: string[]) => Promise<Answer>;
  readonly #isTooLarge: (error: unknown) => boolean;
  #maxIds: number;
  #queue: { id: string; resolve: (answer: Answer) => void; reject: (error: unknown) => void }[] = [];
  #busy = false;

  /** Sends at most `maxIds` ids at once, and fewer after an error for which `isTooLarge` returns `true`. */
  constructor(maxIds: number, isTooLarge: (error: unknown) => boolean, send: (ids: string[]) => Promise<Answer>) {
    this.#maxIds = maxIds;
    this.#isTooLarge = isTooLarge;
    this.#send = send;
  }

  /** Adds an id and waits for the answer to its batch. */
  add(id: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ id, resolve, reject });
      if (this.#busy) return;
      this.#busy = true;
      // Ids added in the same turn of the event loop join the batch.
      queueMicrotask(() => void this.#sendAll());
    });
  }

  async #sendAll(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, this.#maxIds);
      try {
        const answer = await this.#send(batch.map(({ id }) => id));
        for (const { resolve } of batch) resolve(answer);
      } catch (error) {
        if (batch.length > 1 && this.#isTooLarge(error)) {
          this.#maxIds = Math.ceil(batch.length / 2);
          this.#queue.unshift(...batch);
          continue;
        }
        for (const { reject } of batch) reject(error);
      }
    }
    this.#busy = false;
  }
}
