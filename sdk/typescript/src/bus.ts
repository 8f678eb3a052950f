import { type CauseScope, explicitCauses } from "./cause.js";
import { Connection, type StateChange } from "./connection.js";
import { Consumer, type ConsumerBus, type EventHandler } from "./consumer.js";
import { defined, type Publish } from "./delivery.js";
import { type Duration, millis } from "./duration.js";
import { PromError } from "./error.js";
import { newEventId } from "./event-id.js";
import { type Followed, follow } from "./follow.js";
import type { EventRecord, Place } from "./frame.js";
import type { HttpOptions } from "./http.js";
import { BATCH_EVENTS_MAX, CAUGHT_UP_MS, CONNECT_MS, PUBLISH_MS } from "./limits.js";
import type { PublishEntry, PublishOptions } from "./publish-options.js";
import { type Outgoing, Publisher } from "./publisher.js";
import { DeadLetters, Groups, type HistoryQuery, history, latestByKey } from "./resources.js";
import { Schemas } from "./schemas.js";
import type { TokenSource } from "./session.js";
import { type OpenSocket, openPlatformSocket } from "./socket.js";
import { DeliveryStream } from "./stream.js";
import type { ConsumeOptions, GroupOptions, TailOptions } from "./subscribe-options.js";
import { Tail } from "./tail.js";
import {
  type InputOf,
  type PayloadOf,
  SCHEMA_VERSION,
  type Source,
  type Topic,
  validated,
} from "./topic.js";
import { type Trace, type TraceOptions, trace } from "./trace.js";
import { Views } from "./views.js";
import { pollUntil } from "./waiting.js";

/** How to reach a server. */
export interface BusOptions {
  /** Default: `ws://127.0.0.1:7766`. `http:` and `https:` are understood as well. */
  url?: string | URL;
  /** A credential, or what gives one: asked at each connect, and before a credential ends. */
  token?: TokenSource;
  /** Hears whenever the connection is had, lost, or tried again. */
  onState?: (change: StateChange) => void;
  /** Opens WebSockets. Default: that of the platform. */
  openSocket?: OpenSocket;
  /** Knows what is being handled. Default: nothing does; in Node, `AsyncLocalStorage`. */
  causes?: CauseScope;
}

export interface ConnectOptions extends BusOptions {
  /** How long to try before `connect` fails. Default: 10 s. */
  timeout?: Duration;
  signal?: AbortSignal;
}

const DEFAULT_URL = "ws://127.0.0.1:7766";

/** A connection to a server, kept alive until it is closed. */
export class Bus implements AsyncDisposable {
  readonly groups: Groups;
  readonly deadLetters: DeadLetters;
  readonly schemas: Schemas;
  readonly views: Views;
  readonly #connection: Connection;
  readonly #publisher: Publisher;
  readonly #causes: CauseScope;
  readonly #http: HttpOptions;
  readonly #hears = new Set<(change: StateChange) => void>();
  readonly #consumers = new Set<Consumer>();

  /** Begins to connect, in the background. Use `connect` to wait for it. */
  constructor(options: BusOptions = {}) {
    const { socketUrl, base } = addresses(options.url ?? DEFAULT_URL);
    const openSocket = options.openSocket ?? openPlatformSocket;
    this.#http = { base, token: options.token };
    this.#causes = options.causes ?? explicitCauses;
    this.groups = new Groups(this.#http);
    this.deadLetters = new DeadLetters(this.#http);
    this.schemas = new Schemas(this.#http);
    this.views = new Views(this.#http);
    if (options.onState !== undefined) {
      this.#hears.add(options.onState);
    }
    const session = { url: socketUrl, openSocket, token: options.token };
    this.#connection = new Connection(session, (change) => {
      for (const hear of [...this.#hears]) {
        hear(change);
      }
    });
    this.#publisher = new Publisher(this.#connection);
    this.#connection.start();
  }

  /** How the connection is. */
  get state(): StateChange {
    return this.#connection.state;
  }

  /** Hears of changes of the connection, until the function that comes back is called. */
  onState(hear: (change: StateChange) => void): () => void {
    this.#hears.add(hear);
    return () => this.#hears.delete(hear);
  }

  /** Resolves when there is a connection. */
  async connected(options: { timeout?: Duration; signal?: AbortSignal } = {}): Promise<void> {
    options.signal?.throwIfAborted();
    let last: PromError | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let stop = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        const hear = (change: StateChange) => {
          last = change.error ?? last;
          if (change.state === "connected") {
            resolve();
          } else if (change.state === "closed") {
            reject(last ?? new PromError("closed", "the bus was closed"));
          }
        };
        stop = this.onState(hear);
        options.signal?.addEventListener("abort", () => reject(options.signal?.reason));
        timer = setTimeout(
          () => reject(last ?? new PromError("timeout", "no connection in time")),
          millis(options.timeout ?? CONNECT_MS),
        );
        hear(this.state);
      });
    } finally {
      clearTimeout(timer);
      stop();
    }
  }

  /** Stores an event. Resolves when it is durable; sent again as often as it takes until then. */
  async publish<const T extends string | Topic>(
    topic: T,
    payload: InputOf<T>,
    options: PublishOptions = {},
  ): Promise<EventRecord<PayloadOf<T>>> {
    const [record] = await this.#publishAll([{ ...options, topic, payload }], options);
    return record as EventRecord<PayloadOf<T>>;
  }

  /** Stores 1 to 1,000 events, all or none. */
  publishAll(
    entries: readonly PublishEntry[],
    options: { timeout?: Duration; signal?: AbortSignal } = {},
  ): Promise<EventRecord[]> {
    return this.#publishAll(entries, options);
  }

  /** Runs a handler for each event of a group. Resolves when the group is joined. */
  async consume<const S extends Source>(
    source: S,
    options: ConsumeOptions,
    handler: EventHandler<PayloadOf<S>>,
  ): Promise<Consumer> {
    options.signal?.throwIfAborted();
    const handle = handler as EventHandler<unknown>;
    const consumer = new Consumer(this.#forConsumers, source, options, handle);
    this.#consumers.add(consumer);
    const forget = () => this.#consumers.delete(consumer);
    consumer.finished.then(forget, forget);
    return consumer.start();
  }

  /** The events of a group, to be answered one by one. */
  stream<const S extends Source>(source: S, options: GroupOptions): DeliveryStream<PayloadOf<S>> {
    return new DeliveryStream(this.#forConsumers, source, options);
  }

  /**
   * The newest state of each key of a topic, then every event after it: nothing is missed, nothing
   * comes twice. States come from the topic's snapshot (`snapshot = true` in the manifest).
   */
  follow<const S extends string | Topic>(
    source: S,
    options: TailOptions = {},
  ): AsyncGenerator<Followed<PayloadOf<S>>> {
    return follow(this.#connection, this.#http, source, options);
  }

  /** The causes of an event and its effects, of topics that may be read. */
  trace(id: string, options: TraceOptions = {}): Promise<Trace> {
    return trace(this.#http, id, options);
  }

  /** Events as they are stored, without a group and without acks. */
  tail<const S extends Source>(source: S, options: TailOptions = {}): Tail<PayloadOf<S>> {
    return new Tail(this.#connection, source, options);
  }

  /** Stored events of a topic or pattern, oldest first by topic and partition. */
  history(topic: string, query: HistoryQuery = {}): AsyncGenerator<EventRecord> {
    return history(this.#http, topic, query);
  }

  /** The newest event of each key. */
  latestByKey(topic: string, keys: readonly string[]): Promise<Map<string, EventRecord>> {
    return latestByKey(this.#http, topic, keys);
  }

  /** Resolves when a group has handled all that is stored. Needs the scope `admin:ops.read`. */
  async caughtUp(group: string, timeout: Duration = CAUGHT_UP_MS): Promise<void> {
    await pollUntil(millis(timeout), async () => {
      const [lag] = await this.groups.lag(group);
      const events = lag?.events ?? 0;
      return events === 0 ? undefined : `group ${group} is ${events} events behind`;
    });
  }

  /** Leaves the connection, as if the network had failed, and connects again. */
  reconnect(): void {
    this.#connection.reconnect();
  }

  /** Lets handlers finish for a while (10 s), then closes the connection. */
  async close(options: { drain?: Duration } = {}): Promise<void> {
    await Promise.allSettled([...this.#consumers].map((consumer) => consumer.stop(options)));
    this.#connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #publishAll(
    entries: readonly PublishEntry[],
    options: { timeout?: Duration; signal?: AbortSignal },
  ): Promise<EventRecord[]> {
    if (entries.length === 0 || entries.length > BATCH_EVENTS_MAX) {
      throw new PromError("bad_request", `a publish has 1 to ${BATCH_EVENTS_MAX} events`);
    }
    const cause = this.#causes.current();
    const read: unknown[] = [];
    const events: Outgoing[] = [];
    for (const entry of entries) {
      const { outgoing, payload } = await prepared(entry, cause);
      events.push(outgoing);
      read.push(payload);
    }
    const timeoutMs = millis(options.timeout ?? PUBLISH_MS);
    const places = await this.#publisher.publish({ events, timeoutMs, signal: options.signal });
    return events.map((event, index) => recordOf(event, read[index], places[index]));
  }

  readonly #forConsumers: ConsumerBus = ((bus: Bus): ConsumerBus => ({
    get connection() {
      return bus.#connection;
    },
    publishFor:
      (event): Publish =>
      (topic, payload, options) =>
        bus.publish(topic, payload, { causedBy: [event.id], ...traceOf(event, options) }),
    runFor: (event, body) => bus.#causes.run(event, body),
    caughtUp: (group, timeout) => bus.caughtUp(group, timeout),
  }))(this);
}

/** What is sent for an entry, and its payload as readers will see it. */
async function prepared(entry: PublishEntry, cause: EventRecord | undefined) {
  const typed = typeof entry.topic === "string" ? undefined : entry.topic;
  const topic = typeof entry.topic === "string" ? entry.topic : entry.topic.name;
  const id = entry.id ?? newEventId();
  // A tombstone has no content that could be checked.
  const checked = typed !== undefined && entry.payload !== null;
  const payload = checked ? await validated(typed, entry.payload, id) : entry.payload;
  if (entry.payload === undefined) {
    throw new PromError("invalid_event", "a payload is any JSON; null is a tombstone", { id });
  }
  const key = entry.key ?? (checked ? typed.key?.(payload) : undefined);
  const causedBy = entry.causedBy ?? (cause === undefined ? undefined : [cause.id]);
  const traced = cause === undefined ? entry : traceOf(cause, entry);
  const version = typed?.version;
  const headers = {
    ...(version === undefined ? {} : { [SCHEMA_VERSION]: String(version) }),
    ...traced.headers,
  };
  const { tags, sid } = entry;
  const opts = {
    id,
    ts: entry.ts ?? Date.now(),
    ...defined({ key, tags, sid }),
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
    ...(causedBy === undefined || causedBy.length === 0 ? {} : { caused_by: causedBy }),
  };
  return { outgoing: { topic, payload: entry.payload, opts } satisfies Outgoing, payload };
}

/** What comes of an event belongs to the same trace. */
function traceOf<O extends { headers?: Record<string, string> }>(event: EventRecord, options?: O) {
  const traceparent = event.headers?.traceparent;
  const headers =
    traceparent === undefined ? options?.headers : { traceparent, ...options?.headers };
  return { ...(options as O), ...(headers === undefined ? {} : { headers }) };
}

function recordOf(event: Outgoing, payload: unknown, place: Place | undefined): EventRecord {
  const { id, ts, ...rest } = event.opts;
  const { partition = 0, offset = 0 } = place ?? {};
  return { id, ts, topic: event.topic, partition, offset, payload, ...rest };
}

/** Where the WebSocket and the resources of a server are. */
function addresses(given: string | URL): { socketUrl: string; base: string } {
  const url = new URL(given);
  const secure = url.protocol === "wss:" || url.protocol === "https:";
  if (!secure && url.protocol !== "ws:" && url.protocol !== "http:") {
    throw new TypeError(`${url.href}: write it as ws://HOST:PORT or wss://HOST:PORT`);
  }
  const path = url.pathname.replace(/\/$/, "");
  const ws = path === "" ? "/ws" : path;
  const base = `${secure ? "https" : "http"}://${url.host}`;
  return { socketUrl: `${secure ? "wss" : "ws"}://${url.host}${ws}`, base };
}
