import type { ConsumerBus } from "./consumer.js";
import { Delivery } from "./delivery.js";
import type { PromError } from "./error.js";
import { Inbox } from "./inbox.js";
import type { Lease } from "./lease.js";
import { Membership, type Worker } from "./membership.js";
import { type GroupOptions, membershipWish } from "./subscribe-options.js";
import { Decoder, type Source, UnreadablePayload } from "./topic.js";

const PREFETCH = 16;

/** The events of a group, one after the other. Leaving the loop leaves the group. */
export class DeliveryStream<T> implements AsyncIterableIterator<Delivery<T>>, Worker {
  /** Settles when the group is joined: what is published from then on comes. */
  readonly ready: Promise<void>;
  readonly #bus: ConsumerBus;
  readonly #membership: Membership;
  readonly #decoder: Decoder;
  readonly #inbox = new Inbox<Lease>();

  constructor(bus: ConsumerBus, source: Source, options: GroupOptions) {
    this.#bus = bus;
    this.#decoder = new Decoder(source);
    const wish = membershipWish(source, options, PREFETCH);
    this.#membership = new Membership(bus.connection, wish, this);
    this.ready = this.#membership.joined;
    this.#membership.start();
    options.signal?.addEventListener("abort", () => void this.return(), { once: true });
  }

  async next(): Promise<IteratorResult<Delivery<T>, undefined>> {
    for (;;) {
      const lease = await this.#inbox.next();
      if (lease === undefined) {
        await this.#membership.leave();
        return { done: true, value: undefined };
      }
      if (!lease.isHeld) {
        continue;
      }
      this.#membership.extend(lease);
      try {
        const event = await this.#decoder.decode(lease.event);
        const publish = this.#bus.publishFor(event);
        const delivery = new Delivery(event, lease, this.#membership, publish);
        return { done: false, value: delivery as Delivery<T> };
      } catch (thrown) {
        if (!(thrown instanceof UnreadablePayload)) {
          throw thrown;
        }
        // A dead letter that says why, rather than the end of everything.
        await this.#membership.answer(lease, { done: false, thrown });
      }
    }
  }

  /** Ends the stream; what was not answered goes to others at once. */
  async return(): Promise<IteratorResult<Delivery<T>, undefined>> {
    this.#inbox.clear();
    this.#inbox.end();
    await this.#membership.leave();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  delivered(lease: Lease): void {
    this.#inbox.push(lease);
  }

  lost(lease: Lease): void {
    this.#inbox.remove(lease);
  }

  async idle(): Promise<void> {}

  ended(error: PromError): void {
    this.#inbox.end(error.code === "closed" ? undefined : error);
  }
}
