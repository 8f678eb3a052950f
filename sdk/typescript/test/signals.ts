/** Something that happens once, and can be waited for. */
export class Signal<T = void> {
  readonly happened: Promise<T>;
  fire: (value: T) => void = () => {};

  constructor() {
    this.happened = new Promise((resolve) => {
      this.fire = resolve;
    });
  }
}

/** Collects what comes, and waits until there is enough of it. */
export class Collected<T> {
  readonly items: T[] = [];
  #waiting: { count: number; resolve: (items: T[]) => void }[] = [];

  readonly add = (item: T): void => {
    this.items.push(item);
    const ready = this.#waiting.filter((one) => one.count <= this.items.length);
    this.#waiting = this.#waiting.filter((one) => !ready.includes(one));
    for (const one of ready) {
      one.resolve(this.items);
    }
  };

  count(count: number): Promise<T[]> {
    if (this.items.length >= count) {
      return Promise.resolve(this.items);
    }
    return new Promise((resolve) => this.#waiting.push({ count, resolve }));
  }
}

/** The first items of an iterator. */
export async function take<T>(from: AsyncIterator<T>, count: number): Promise<T[]> {
  const taken: T[] = [];
  while (taken.length < count) {
    const next = await from.next();
    if (next.done) {
      break;
    }
    taken.push(next.value);
  }
  return taken;
}
