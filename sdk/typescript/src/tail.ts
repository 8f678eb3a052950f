import type { Attendant, Connection } from "./connection.js";
import { PromError } from "./error.js";
import type { Cursor, EventRecord, EventsFrame, Gap, ResumedFrame } from "./frame.js";
import { Inbox } from "./inbox.js";
import { PREFETCH_MAX } from "./limits.js";
import type { Session } from "./session.js";
import { fromOpts, type TailOptions } from "./subscribe-options.js";
import { Decoder, namesOf, type Source, UnreadablePayload } from "./topic.js";

const PREFETCH = 256;

/**
 * Topics, followed without a group: nothing is kept on the server, nothing is acked. The tail knows
 * how far it is in each partition, and goes on from there after a reconnect, or says what is missing.
 */
export class Tail<T> implements AsyncIterableIterator<EventRecord<T>>, Attendant {
  /** Settles when the server follows: what is published from then on comes. */
  readonly ready: Promise<void>;
  readonly #connection: Connection;
  readonly #topics: string[];
  readonly #options: TailOptions;
  readonly #decoder: Decoder;
  readonly #prefetch: number;
  readonly #inbox = new Inbox<EventRecord>();
  readonly #after = new Map<string, Cursor>();
  #settleReady: (error?: PromError) => void = () => {};
  #epoch: string | undefined;
  readonly #begun: boolean;
  #session: Session | undefined;
  #sub: number | undefined;
  #read = 0;
  #ended = false;

  /** With `after`, it goes on from these places at first, as after a reconnect. */
  constructor(
    connection: Connection,
    source: Source,
    options: TailOptions,
    after: readonly Cursor[] = [],
  ) {
    this.#begun = after.length > 0;
    for (const cursor of after) {
      this.#after.set(placeOf(cursor), cursor);
    }
    this.#connection = connection;
    this.#topics = namesOf(source);
    this.#options = options;
    this.#decoder = new Decoder(source);
    this.#prefetch = Math.min(Math.max(1, options.prefetch ?? PREFETCH), PREFETCH_MAX);
    this.ready = new Promise((resolve, reject) => {
      this.#settleReady = (error) => (error === undefined ? resolve() : reject(error));
    });
    // Whoever reads hears of it in any case.
    this.ready.catch(() => {});
    options.signal?.addEventListener("abort", () => void this.return(), { once: true });
    connection.attend(this);
  }

  connected(session: Session): void {
    this.#session = session;
    this.#read = 0;
    const first = this.#epoch === undefined;
    const anew = !first && this.#epoch !== session.hello.epoch;
    if (anew && !this.#skipStore()) {
      return;
    }
    const { filter } = this.#options;
    const opts = {
      // A partition that was not there before is read from its beginning: all of it is news.
      ...(first && !this.#begun ? fromOpts(this.#options.from) : { from: "earliest" as const }),
      ...(filter === undefined ? {} : { filter }),
      after: [...this.#after.values()],
      // What is here unread counts.
      credit: Math.max(0, this.#prefetch - this.#inbox.size),
      batch: true as const,
    };
    session
      .request({ op: "RESUME", topics: this.#topics, opts }, (answer) => {
        if (answer.op === "RESUMED") {
          this.#resumed(session, answer, first, anew);
        }
      })
      .then(
        () => this.#settleReady(),
        (error: PromError) => this.#refused(session, error),
      );
  }

  lost(error: PromError, final: boolean): void {
    this.#session = undefined;
    this.#sub = undefined;
    if (final) {
      this.#end(error.code === "closed" ? undefined : error);
    }
  }

  async next(): Promise<IteratorResult<EventRecord<T>, undefined>> {
    for (;;) {
      const event = await this.#inbox.next();
      if (event === undefined) {
        return { done: true, value: undefined };
      }
      this.#repay();
      try {
        return { done: false, value: (await this.#decoder.decode(event)) as EventRecord<T> };
      } catch (error) {
        if (!(error instanceof UnreadablePayload) || this.#options.onInvalid === undefined) {
          await this.return();
          throw error;
        }
        this.#options.onInvalid(error);
      }
    }
  }

  async return(): Promise<IteratorResult<EventRecord<T>, undefined>> {
    this.#inbox.clear();
    this.#leave();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #resumed(session: Session, answer: ResumedFrame, first: boolean, anew: boolean): void {
    this.#sub = answer.sub;
    this.#epoch = session.hello.epoch;
    for (const cursor of answer.after ?? []) {
      this.#after.set(placeOf(cursor), cursor);
    }
    session.feed(answer.sub, {
      events: (frame) => this.#take(frame),
      gap: (gap) => this.#missing(gap),
      ended: (error) => {
        this.#sub = undefined;
        this.#refused(session, error);
      },
    });
    if (!first) {
      this.#options.onResumed?.({ recovered: answer.recovered && !anew });
    }
    for (const gap of answer.gaps ?? []) {
      this.#missing(gap);
    }
  }

  #refused(session: Session, error: PromError): void {
    if (!session.isOpen || this.#ended) {
      return;
    }
    if (!error.retryable) {
      this.#end(error);
      return;
    }
    const again = () => {
      if (this.#session === session && session.isOpen && !this.#ended) {
        this.connected(session);
      }
    };
    setTimeout(again, error.retryMs ?? 1_000);
  }

  #take(frame: EventsFrame): void {
    for (const { event } of frame.events) {
      const { topic, partition, offset } = event;
      this.#after.set(placeOf(event), { topic, partition, next: offset + 1 });
      this.#inbox.push(event);
    }
  }

  /** The server has another store than before: positions mean nothing, all in it is news. */
  #skipStore(): boolean {
    const known = [...this.#after.values()];
    this.#after.clear();
    for (const { topic, partition, next } of known) {
      this.#missing({ topic, partition, from: next, to: next, reason: "epoch" });
    }
    return !this.#ended;
  }

  #missing(gap: Gap): void {
    const { topic, partition, from, to, reason } = gap;
    const cursor = this.#after.get(placeOf(gap));
    if (reason === "removed") {
      // It is another one if it is made again.
      this.#after.delete(placeOf(gap));
    } else if (reason === "beyond_end") {
      // The old place; where it goes on was said.
    } else if (cursor !== undefined && to > cursor.next) {
      this.#after.set(placeOf(gap), { topic, partition, next: to });
    }
    const told = { topic, partition, from, to, reason };
    if (this.#options.onGap !== undefined) {
      this.#options.onGap(told);
    } else if (reason !== "compacted") {
      const text = `${topic}, partition ${partition}: ${from} to ${to} are missing (${reason})`;
      this.#leave(new PromError("gap", text));
    }
  }

  /** What is here can still be read; then the tail ends, with the error if there is one. */
  #leave(error?: PromError): void {
    const [session, sub] = [this.#session, this.#sub];
    this.#end(error);
    if (session?.isOpen && sub !== undefined) {
      session.unfeed(sub);
      session.post({ op: "UNSUBSCRIBE", sub });
    }
  }

  #repay(): void {
    this.#read += 1;
    if (this.#read * 2 >= this.#prefetch && this.#sub !== undefined) {
      this.#session?.post({ op: "CREDIT", sub: this.#sub, credit: this.#read });
      this.#read = 0;
    }
  }

  #end(error?: PromError): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#connection.dismiss(this);
      this.#settleReady(error ?? new PromError("closed", "the tail was left"));
      this.#inbox.end(error);
    }
  }
}

function placeOf(at: { topic: string; partition: number }): string {
  return `${at.topic}/${at.partition}`;
}
