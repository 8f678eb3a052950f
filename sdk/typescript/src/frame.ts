/** What travels: PROTOCOL.md as types. Members that are not known are ignored. */

/** An event, as it is stored and delivered. */
export interface EventRecord<T = unknown> {
  /** UUIDv7. */
  readonly id: string;
  /** Boot or session of the publisher. */
  readonly sid?: string;
  /** Event time, epoch milliseconds. */
  readonly ts: number;
  readonly topic: string;
  readonly key?: string;
  readonly partition: number;
  /** Position in the partition. */
  readonly offset: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** `null` is a tombstone: the key is gone. */
  readonly payload: T;
  /** Events that led to this one. */
  readonly caused_by?: readonly string[];
  readonly tags?: readonly string[];
}

/** What is said about a delivery. */
export interface DeliveryFrame {
  attempt: number;
  max_attempts: number;
  ack_deadline_ms?: number;
  token?: string;
}

/** Where the next event of a partition stands. */
export interface Cursor {
  topic: string;
  partition: number;
  next: number;
}

/** Offsets `from` to `to`, without `to`, that will never come. */
export interface Gap {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly to: number;
  /**
   * `expired`, `retention`, `compacted`, `corrupt`; `removed` if the topic is gone, `beyond_end` if it
   * was made anew, or `epoch` if the server has another store.
   */
  readonly reason: string;
}

/** Where a published event stands. */
export interface Place {
  id: string;
  partition: number;
  offset: number;
  duplicate?: boolean;
}

export interface HelloFrame {
  op: "HELLO";
  protocol: string;
  server: string;
  epoch: string;
  session: string;
  limits: { frame_bytes: number; [name: string]: number };
}

export interface OkFrame {
  op: "OK";
  corr?: number;
  id?: string;
  places?: Place[];
  /** How far the events had come, where their topics ask for less than a disk. */
  durability?: "none" | "written";
  sub?: number;
  accepted?: number;
  /** Deliveries that could not be acked. */
  refused?: RefusedToken[];
  expires_at?: number;
}

export interface RefusedToken {
  token: string;
  code: string;
}

export interface ErrFrame {
  op: "ERR";
  corr?: number;
  code: string;
  msg: string;
  retry_ms?: number;
  /** The subscription that it ends. */
  sub?: number;
  /** Deliveries that could not be acked. */
  refused?: RefusedToken[];
}

export interface EventsFrame {
  op: "EVENTS";
  sub: number;
  group?: string;
  events: { event: EventRecord; ctx: DeliveryFrame }[];
}

export interface GapFrame extends Gap {
  op: "GAP";
  sub: number;
}

export interface ResumedFrame {
  op: "RESUMED";
  corr?: number;
  sub: number;
  recovered: boolean;
  gaps?: Gap[];
  after?: Cursor[];
}

export interface DrainFrame {
  op: "DRAIN";
  reason: string;
  deadline_ms: number;
}

export type ServerFrame =
  | HelloFrame
  | OkFrame
  | ErrFrame
  | EventsFrame
  | GapFrame
  | ResumedFrame
  | DrainFrame;

export interface PublishFrameOpts {
  id: string;
  ts: number;
  key?: string;
  headers?: Record<string, string>;
  tags?: string[];
  caused_by?: string[];
  sid?: string;
}

export interface SubscribeFrameOpts {
  from?: "latest" | "earliest" | "ts" | "after_id";
  ts?: number;
  after_id?: string;
  filter?: string;
  batch_size?: number;
  max_in_flight?: number;
  ack_timeout_ms?: number;
  max_attempts?: number;
  mode?: "shared" | "partitioned";
  credit?: number;
  batch: true;
  after?: Cursor[];
}

export type ClientFrame =
  | { op: "AUTH"; token: string }
  | { op: "PUBLISH"; events: { topic: string; payload: unknown; opts: PublishFrameOpts }[] }
  | { op: "SUBSCRIBE" | "RESUME"; topics: string[]; group?: string; opts: SubscribeFrameOpts }
  | { op: "UNSUBSCRIBE" | "PAUSE" | "RESUME"; sub: number }
  | { op: "CREDIT"; sub: number; credit: number }
  | { op: "ACK"; token: string }
  | { op: "ACKS"; tokens: string[] }
  | { op: "NACK"; token: string; reason?: string; delay_ms?: number; park?: boolean }
  | { op: "MODACK"; token: string; extend_ms: number };

/** Answers to a request: it worked, or the request was refused (an `ERR` becomes an error). */
export type AnswerFrame = OkFrame | ResumedFrame;
