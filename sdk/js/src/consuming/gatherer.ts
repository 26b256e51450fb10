/**
 * One batch at a time: what is added while one is under way goes together in the next. So a fast consumer sends few
 * frames and a slow one does not wait.
 */
export class Gatherer<Answer> {
  readonly #send: (ids: string[]) => Promise<Answer>;
  readonly #isTooMany: (error: unknown) => boolean;
  #most: number;
  #gathered: { id: string; resolve: (answer: Answer) => void; reject: (error: unknown) => void }[] = [];
  #busy = false;

  /** Sends batches of at most `most` by `send`, and smaller ones after an error that says that it was too many. */
  constructor(most: number, isTooMany: (error: unknown) => boolean, send: (ids: string[]) => Promise<Answer>) {
    this.#most = most;
    this.#isTooMany = isTooMany;
    this.#send = send;
  }

  /** Adds an id. Gives the answer to the batch that it was in. */
  add(id: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#gathered.push({ id, resolve, reject });
      if (this.#busy) return;
      this.#busy = true;
      // What is added in this very moment still comes along.
      queueMicrotask(() => void this.#work());
    });
  }

  async #work(): Promise<void> {
    while (this.#gathered.length > 0) {
      const batch = this.#gathered.splice(0, this.#most);
      try {
        const answer = await this.#send(batch.map(({ id }) => id));
        for (const { resolve } of batch) resolve(answer);
      } catch (error) {
        if (batch.length > 1 && this.#isTooMany(error)) {
          this.#most = Math.ceil(batch.length / 2);
          this.#gathered.unshift(...batch);
          continue;
        }
        for (const { reject } of batch) reject(error);
      }
    }
    this.#busy = false;
  }
}
