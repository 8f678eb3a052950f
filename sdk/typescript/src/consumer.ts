import type { Connection } from "./connection.js";
import { Delivery, type Publish } from "./delivery.js";
import { type Duration, millis } from "./duration.js";
import type { PromError } from "./error.js";
import type { EventRecord } from "./frame.js";
import type { Lease } from "./lease.js";
import { DRAIN_MS } from "./limits.js";
import { type Answer, Membership, type Worker } from "./membership.js";
import { Outcome, Park, Retry, Skip } from "./outcome.js";
import { type ConsumeOptions, membershipWish } from "./subscribe-options.js";
import { Decoder, type Source } from "./topic.js";

/** What a handler is told besides the event. */
export interface HandlerContext {
  readonly group: string;
  /** From 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Aborts when the event is not ours any more. */
  readonly signal: AbortSignal;
  /** Publishes, and names the event as the cause. */
  readonly publish: Publish;
  /** Work goes on: `maxProcessing` begins anew. */
  progress(): void;
  /** To be thrown or returned: the event comes again. */
  retry(options?: { after?: Duration; reason?: string }): Retry;
  /** To be thrown or returned: the event becomes a dead letter at once. */
  park(reason: string): Park;
  /** To be thrown or returned: the event is done. */
  skip(): Skip;
}

/** Works on an event. Returning acks it; throwing has it tried again, or what the outcome says. */
export type EventHandler<T> = (
  event: EventRecord<T>,
  ctx: HandlerContext,
) => Promise<unknown> | unknown;

/** What a consumer needs of its bus. */
export interface ConsumerBus {
  readonly connection: Connection;
  /** A publish that names the event as its cause. */
  publishFor(event: EventRecord): Publish;
  runFor<T>(event: EventRecord, body: () => T): T;
  caughtUp(group: string, timeout: Duration | undefined): Promise<void>;
}

/** Runs a handler for each event of a group. */
export class Consumer implements Worker, AsyncDisposable {
  /** Settles when the consumer has stopped: rejects if that was not wanted. */
  readonly finished: Promise<void>;
  readonly #bus: ConsumerBus;
  readonly #membership: Membership;
  readonly #decoder: Decoder;
  readonly #handler: EventHandler<unknown>;
  readonly #concurrency: number;
  readonly #onError: ConsumeOptions["onError"];
  readonly #waiting: Lease[] = [];
  readonly #running = new Set<Promise<void>>();
  #stopped = false;
  #finish: (error?: PromError) => void = () => {};

  constructor(
    bus: ConsumerBus,
    source: Source,
    options: ConsumeOptions,
    handler: EventHandler<unknown>,
  ) {
    this.#bus = bus;
    this.#handler = handler;
    this.#decoder = new Decoder(source);
    this.#concurrency = Math.max(1, Math.floor(options.concurrency ?? 1));
    this.#onError = options.onError;
    const wish = membershipWish(source, options, this.#concurrency * 4);
    this.#membership = new Membership(bus.connection, wish, this);
    this.finished = new Promise((resolve, reject) => {
      this.#finish = (error) => (error === undefined ? resolve() : reject(error));
    });
    const stop = () => {
      void this.stop();
    };
    options.signal?.addEventListener("abort", stop, { once: true });
  }

  /** Joins the group. Rejects if the server does not allow it. */
  async start(): Promise<this> {
    this.#membership.start();
    try {
      await this.#membership.joined;
    } catch (error) {
      // Whoever starts it hears of it here.
      this.finished.catch(() => {});
      throw error;
    }
    return this;
  }

  get group(): string {
    return this.#membership.group;
  }

  /** Events that are being worked on. */
  get running(): number {
    return this.#running.size;
  }

  pause(): Promise<void> {
    return this.#membership.pause();
  }

  resume(): Promise<void> {
    return this.#membership.resume();
  }

  /** Resolves when the group has handled all that is stored. Needs the scope `admin:ops.read`. */
  caughtUp(options: { timeout?: Duration } = {}): Promise<void> {
    return this.#bus.caughtUp(this.group, options.timeout);
  }

  /** Takes nothing new, lets handlers finish for a while (10 s), then leaves the group. */
  async stop(options: { drain?: Duration } = {}): Promise<void> {
    if (this.#stopped) {
      return;
    }
    this.#stopped = true;
    this.#waiting.length = 0;
    await bounded(this.idle(), millis(options.drain ?? DRAIN_MS));
    await this.#membership.leave();
    this.#finish();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  delivered(lease: Lease): void {
    if (!this.#stopped) {
      this.#waiting.push(lease);
      this.#pump();
    }
  }

  lost(lease: Lease): void {
    const place = this.#waiting.indexOf(lease);
    if (place >= 0) {
      this.#waiting.splice(place, 1);
    }
  }

  async idle(): Promise<void> {
    while (this.#running.size > 0) {
      await Promise.all(this.#running);
    }
  }

  ended(error: PromError): void {
    this.#stopped = true;
    this.#waiting.length = 0;
    if (error.code === "closed") {
      this.#finish();
    } else {
      this.#finish(error);
    }
  }

  #pump(): void {
    while (this.#busy < this.#concurrency && !this.#stopped) {
      const lease = this.#waiting.shift();
      if (lease === undefined) {
        return;
      }
      this.#busy += 1;
      const run = this.#run(lease).finally(() => this.#running.delete(run));
      this.#running.add(run);
    }
  }

  /** Handlers that run; answers may still be on their way when one has returned. */
  #busy = 0;

  async #run(lease: Lease): Promise<void> {
    this.#membership.extend(lease);
    const answer = await this.#handle(lease);
    this.#busy -= 1;
    this.#pump();
    if (!answer.done && !(answer.thrown instanceof Outcome)) {
      this.#onError?.(answer.thrown, lease.event);
    }
    try {
      await this.#membership.answer(lease, answer);
    } catch (error) {
      // Not ours any more: the event comes again, here or elsewhere, and is answered then.
      this.#onError?.(error, lease.event);
    }
  }

  async #handle(lease: Lease): Promise<Answer> {
    try {
      const event = await this.#decoder.decode(lease.event);
      const context = this.#context(event, lease);
      const handler = this.#handler;
      const returned = await this.#bus.runFor(event, () => handler(event, context));
      return returned instanceof Outcome ? { done: false, thrown: returned } : { done: true };
    } catch (thrown) {
      return { done: false, thrown };
    }
  }

  #context(event: EventRecord, lease: Lease): HandlerContext {
    const publish = this.#bus.publishFor(event);
    const delivery = new Delivery(event, lease, this.#membership, publish);
    return {
      group: delivery.group,
      attempt: delivery.attempt,
      maxAttempts: delivery.maxAttempts,
      get signal() {
        return delivery.signal;
      },
      publish,
      progress: () => delivery.progress(),
      retry: (options) => new Retry(options),
      park: (reason) => new Park(reason),
      skip: () => new Skip(),
    };
  }
}

/** Waits for work, but not longer than that. */
async function bounded(work: Promise<void>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}
