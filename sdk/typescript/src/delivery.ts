import type { Duration } from "./duration.js";
import type { EventRecord } from "./frame.js";
import type { Lease } from "./lease.js";
import type { Answer, Membership } from "./membership.js";
import { Park, Retry } from "./outcome.js";
import type { PublishOptions } from "./publish-options.js";
import type { InputOf, PayloadOf, Topic } from "./topic.js";

/** Publishes, as `Bus.publish` does. */
export type Publish = <const T extends string | Topic>(
  topic: T,
  payload: InputOf<T>,
  options?: PublishOptions,
) => Promise<EventRecord<PayloadOf<T>>>;

/** An event that was lent to this consumer: work on it, then say how it went, once. */
export class Delivery<T = unknown> implements EventRecord<T> {
  readonly id: string;
  readonly sid?: string;
  readonly ts: number;
  readonly topic: string;
  readonly key?: string;
  readonly partition: number;
  readonly offset: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly payload: T;
  readonly caused_by?: readonly string[];
  readonly tags?: readonly string[];
  readonly group: string;
  /** From 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Publishes, and names this event as the cause. */
  readonly publish: Publish;
  readonly #lease: Lease;
  readonly #membership: Membership;

  constructor(event: EventRecord<T>, lease: Lease, membership: Membership, publish: Publish) {
    this.id = event.id;
    this.ts = event.ts;
    this.topic = event.topic;
    this.partition = event.partition;
    this.offset = event.offset;
    this.payload = event.payload;
    const { sid, key, headers, caused_by, tags } = event;
    Object.assign(this, defined({ sid, key, headers, caused_by, tags }));
    this.group = membership.group;
    this.attempt = lease.attempt;
    this.maxAttempts = lease.maxAttempts;
    this.publish = publish;
    this.#lease = lease;
    this.#membership = membership;
  }

  /** Aborts when the event is not ours any more: its lease ended, or the connection was lost. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /** It is done. Resolves when that is durable. */
  ack(): Promise<void> {
    return this.#answer({ done: true });
  }

  /** It is to come again: at once, later, or as the group's backoff says. */
  retry(options: { after?: Duration; reason?: string } = {}): Promise<void> {
    return this.#answer({ done: false, thrown: new Retry(options) });
  }

  /** It is hopeless: to the dead letters at once. */
  park(reason: string): Promise<void> {
    return this.#answer({ done: false, thrown: new Park(reason) });
  }

  /** There is nothing to do about it: done. */
  skip(): Promise<void> {
    return this.ack();
  }

  /** Work goes on, slowly but surely: `maxProcessing` begins anew. */
  progress(): void {
    this.#membership.extend(this.#lease);
  }

  #answer(answer: Answer): Promise<void> {
    return this.#membership.answer(this.#lease, answer);
  }
}

/** The members that have a value. */
export function defined<T extends object>(
  members: T,
): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Name in keyof T]?: Exclude<T[Name], undefined> };
}
