/** What has come and was not read yet, and those who wait for more. Its size is bounded by credits. */
export class Inbox<T> {
  readonly #items: T[] = [];
  readonly #readers: {
    resolve: (item: T | undefined) => void;
    reject: (error: unknown) => void;
  }[] = [];
  #end: { error: unknown } | undefined;

  get size(): number {
    return this.#items.length;
  }

  push(item: T): void {
    const reader = this.#readers.shift();
    if (reader === undefined) {
      this.#items.push(item);
    } else {
      reader.resolve(item);
    }
  }

  /** The next item; `undefined` at the end. */
  next(): Promise<T | undefined> {
    const item = this.#items.shift();
    if (item !== undefined) {
      return Promise.resolve(item);
    }
    if (this.#end !== undefined) {
      const { error } = this.#end;
      // Told once; after that, it is just the end.
      this.#end = { error: undefined };
      return error === undefined ? Promise.resolve(undefined) : Promise.reject(error);
    }
    return new Promise((resolve, reject) => this.#readers.push({ resolve, reject }));
  }

  remove(item: T): void {
    const place = this.#items.indexOf(item);
    if (place >= 0) {
      this.#items.splice(place, 1);
    }
  }

  /** What is there can be read, then it ends, with an error or well. */
  end(error?: unknown): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#end = { error };
    for (const [index, reader] of this.#readers.splice(0).entries()) {
      if (index === 0 && error !== undefined) {
        this.#end = { error: undefined };
        reader.reject(error);
      } else {
        reader.resolve(undefined);
      }
    }
  }

  clear(): void {
    this.#items.length = 0;
  }
}
