/**
 * A small `EventBus` over a server, with the names and signatures of buses in memory, so that code
 * written for one of those moves by changing an import. What it promises is what the server
 * promises: acks move the cursor past a gapless run only, leases and attempts are counted there.
 */
import { Bus, type BusOptions } from "./bus.js";
import type { Consumer } from "./consumer.js";
import { PromError } from "./error.js";
import type { EventRecord as StoredEvent } from "./frame.js";
import { Retry, Skip } from "./outcome.js";
import type { From } from "./subscribe-options.js";

export type UUID = string;
export type Millis = number;

/** An event; a stored one has its partition and offset as well. */
export interface EventRecord<T = unknown> {
  id: UUID;
  sid?: UUID;
  ts: Millis;
  topic: string;
  key?: string;
  partition?: number;
  offset?: number;
  headers?: Record<string, string>;
  payload: T;
  caused_by?: UUID[];
  tags?: string[];
}

export interface CursorPosition {
  topic: string;
  lastId?: UUID;
  lastTs?: Millis;
}

export interface DeliveryContext {
  attempt: number;
  maxAttempts: number;
  cursor?: CursorPosition;
}

export interface SubscribeOptions {
  group: string;
  from?: "latest" | "earliest" | "ts" | "afterId";
  ts?: Millis;
  afterId?: UUID;
  /** Events that are fetched ahead. Default: 100. */
  batchSize?: number;
  /** Handlers that may run at once. Default: 1,000. */
  maxInFlight?: number;
  ackTimeoutMs?: number;
  maxAttempts?: number;
  /** Events it is false of are done without being handled. */
  filter?(e: EventRecord): boolean;
  /** More topics than the one that is named. */
  topics?: string[];
  /** The event is done when `ack` is called, not when the handler returns. Default: false. */
  manualAck?: boolean;
}

export interface PublishOptions {
  id?: UUID;
  ts?: Millis;
  key?: string;
  headers?: Record<string, string>;
  tags?: string[];
  caused_by?: UUID[];
  sid?: UUID;
}

export interface Ack {
  id: UUID;
  ok: boolean;
  err?: string;
}

export interface EventBus {
  publish<T>(topic: string, payload: T, opts?: PublishOptions): Promise<EventRecord<T>>;
  subscribe(
    topic: string,
    group: string,
    handler: (e: EventRecord, ctx: DeliveryContext) => Promise<void>,
    opts?: Omit<SubscribeOptions, "group">,
  ): Promise<() => Promise<void>>;
  ack(topic: string, group: string, id: UUID): Promise<Ack>;
  nack(topic: string, group: string, id: UUID, reason?: string): Promise<Ack>;
  getCursor(topic: string, group: string): Promise<CursorPosition | null>;
  setCursor(topic: string, group: string, cursor: CursorPosition): Promise<void>;
}

/** An event that a handler has, or had and did not answer yet. */
interface Handed {
  failed: string | undefined;
  /** With `manualAck`: lets the delivery end. */
  decide: (() => void) | undefined;
}

export class RemoteEventBus implements EventBus, AsyncDisposable {
  readonly #bus: Bus;
  readonly #consumers = new Set<Consumer>();
  readonly #handed = new Map<string, Handed>();

  /** Over a bus that is there, or one that is made of options and begins to connect. */
  constructor(bus: Bus | BusOptions = {}) {
    this.#bus = bus instanceof Bus ? bus : new Bus(bus);
  }

  async publish<T>(topic: string, payload: T, opts: PublishOptions = {}): Promise<EventRecord<T>> {
    const { caused_by: causedBy, ...rest } = opts;
    const options = causedBy === undefined ? rest : { ...rest, causedBy };
    return (await this.#bus.publish(topic, payload, options)) as EventRecord<T>;
  }

  async subscribe(
    topic: string,
    group: string,
    handler: (e: EventRecord, ctx: DeliveryContext) => Promise<void>,
    opts: Omit<SubscribeOptions, "group"> = {},
  ): Promise<() => Promise<void>> {
    const { batchSize = 100, maxInFlight = 1_000, ackTimeoutMs, maxAttempts } = opts;
    const consumer = await this.#bus.consume(
      [...new Set([topic, ...(opts.topics ?? [])])],
      {
        group,
        from: fromOf(opts),
        concurrency: maxInFlight,
        prefetch: Math.min(batchSize, maxInFlight),
        ...(ackTimeoutMs === undefined ? {} : { ackTimeout: ackTimeoutMs }),
        ...(maxAttempts === undefined ? {} : { maxAttempts }),
      },
      async (stored, ctx) => {
        const event = stored as EventRecord;
        if (opts.filter?.(event) === false) {
          return new Skip();
        }
        const { attempt, maxAttempts } = ctx;
        return this.#handOut(group, event, opts.manualAck ?? false, () =>
          handler(event, { attempt, maxAttempts }),
        );
      },
    );
    this.#consumers.add(consumer);
    return async () => {
      this.#consumers.delete(consumer);
      await consumer.stop();
    };
  }

  async ack(topic: string, group: string, id: UUID): Promise<Ack> {
    return this.#decide(topic, group, id, undefined);
  }

  async nack(topic: string, group: string, id: UUID, reason = "refused"): Promise<Ack> {
    const answer = this.#decide(topic, group, id, reason);
    return answer.ok ? { ...answer, err: reason } : answer;
  }

  /** The last event before the group's cursor, of the partition that is newest. */
  async getCursor(topic: string, group: string): Promise<CursorPosition | null> {
    const cursors = await this.#bus.groups.cursors(group).catch((error: unknown) => {
      if (error instanceof PromError && error.code === "not_found") {
        return [];
      }
      throw error;
    });
    let newest: StoredEvent | undefined;
    let known = false;
    for (const cursor of cursors) {
      if (cursor.topic !== topic) {
        continue;
      }
      known = true;
      const event = await this.#before(topic, cursor.partition, cursor.next);
      if (event !== undefined && (newest === undefined || event.ts >= newest.ts)) {
        newest = event;
      }
    }
    if (newest === undefined) {
      return known ? { topic } : null;
    }
    return { topic, lastId: newest.id, lastTs: newest.ts };
  }

  /** Moves the group: after an event, to a time, or to the beginning. */
  async setCursor(topic: string, group: string, cursor: CursorPosition): Promise<void> {
    const { lastId, lastTs } = cursor;
    const time = lastTs === undefined ? "earliest" : new Date(lastTs);
    const to: From = lastId === undefined ? time : { afterId: lastId };
    await this.#bus.groups.seek(group, to, { topics: topic, apply: true });
  }

  /** Ends all subscriptions and the connection. */
  async close(): Promise<void> {
    await Promise.all([...this.#consumers].map((consumer) => consumer.stop()));
    await this.#bus.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #handOut(group: string, event: EventRecord, manual: boolean, run: () => Promise<void>) {
    const name = nameOf(event.topic, group, event.id);
    const handed: Handed = { failed: undefined, decide: undefined };
    const decided = new Promise<void>((resolve) => {
      handed.decide = resolve;
    });
    this.#handed.set(name, handed);
    try {
      await run();
      if (manual) {
        await decided;
      }
    } finally {
      this.#handed.delete(name);
    }
    return handed.failed === undefined ? undefined : new Retry({ reason: handed.failed });
  }

  #decide(topic: string, group: string, id: UUID, failed: string | undefined): Ack {
    const handed = this.#handed.get(nameOf(topic, group, id));
    if (handed === undefined) {
      return { id, ok: false, err: "unknown_id: no such event is being handled here" };
    }
    handed.failed = failed;
    handed.decide?.();
    return { id, ok: true };
  }

  async #before(topic: string, partition: number, next: number): Promise<StoredEvent | undefined> {
    if (next === 0) {
      return undefined;
    }
    const after = `${topic}/${partition}/${next - 1}`;
    for await (const event of this.#bus.history(topic, { partition, after })) {
      return event.offset < next ? event : undefined;
    }
    return undefined;
  }
}

function nameOf(topic: string, group: string, id: UUID): string {
  return JSON.stringify([topic, group, id]);
}

function fromOf(opts: Omit<SubscribeOptions, "group">): From {
  const { from = "latest", ts, afterId } = opts;
  if (from === "ts") {
    return new Date(ts ?? 0);
  }
  if (from === "afterId") {
    return afterId === undefined ? "earliest" : { afterId };
  }
  return from;
}
