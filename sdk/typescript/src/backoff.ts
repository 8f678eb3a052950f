import { BACKOFF_FIRST_MS, BACKOFF_MAX_MS } from "./limits.js";

/**
 * How long to wait before trying again: doubled with each failure up to a cap, of which chance takes
 * a part, so that clients that were cut off together do not come back together.
 */
export class Backoff {
  #failures = 0;
  readonly #random: () => number;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  nextMs(): number {
    const ceiling = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(this.#failures, 20));
    this.#failures += 1;
    return this.#random() * ceiling;
  }

  /** It worked: the next failure is a first one. */
  reset(): void {
    this.#failures = 0;
  }
}
