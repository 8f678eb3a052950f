import type { Duration } from "./duration.js";

/** What a publisher may say about an event. */
export interface PublishOptions {
  /** Identity; the same one again adds nothing. Default: a new UUIDv7. */
  id?: string;
  /** Event time, epoch milliseconds. Default: now. */
  ts?: number;
  /** Events of one key stay in order. Default: what a typed topic says, or none. */
  key?: string;
  /** Names begin with `x-` or `ce-`, or are `traceparent`. */
  headers?: Record<string, string>;
  tags?: string[];
  /** Events that led to this one. Default: the one that is being handled; `[]` for none. */
  causedBy?: string[];
  /** Boot or session of the publisher. */
  sid?: string;
  /** Everything that is tried ends after this. Default: 30 s. */
  timeout?: Duration;
  signal?: AbortSignal;
}

/** One event of an atomic publish. */
export interface PublishEntry extends Omit<PublishOptions, "timeout" | "signal"> {
  topic: string | import("./topic.js").Topic;
  payload: unknown;
}
