import { type Duration, millis } from "./duration.js";
import type { EventRecord, Gap, SubscribeFrameOpts } from "./frame.js";
import { LEASE_MS, PREFETCH_MAX, PROCESSING_MS } from "./limits.js";
import type { MembershipWish } from "./membership.js";
import { namesOf, type Source, type UnreadablePayload } from "./topic.js";

/** Where reading begins: at what comes, at the oldest event, at an append time, after an event. */
export type From = "latest" | "earliest" | Date | { afterId: string };

/** How a member of a group is served. */
export interface GroupOptions {
  /** The durable group: members share its events, each of which goes to one of them. */
  group: string;
  /** Where a group that is new begins. Default: `"latest"`. */
  from?: From;
  /** A CEL expression; what it is not true of is passed over. Default: none. */
  filter?: string;
  /** Events that may be here without having been answered, 1,000 at most. */
  prefetch?: number;
  /** How long a lease lasts without being renewed. Default: 30 s. */
  ackTimeout?: Duration;
  /** How long leases are renewed for work that does not end. Default: 5 min. */
  maxProcessing?: Duration;
  /** Deliveries before an event is a dead letter. Default: 5. */
  maxAttempts?: number;
  /** `partitioned`: each partition goes to one member. Default: `shared`. */
  mode?: "shared" | "partitioned";
  signal?: AbortSignal;
}

/** How a handler is run. */
export interface ConsumeOptions extends GroupOptions {
  /** Handlers that may run at once; events of one key never do. Default: 1. */
  concurrency?: number;
  /** Default: four for each handler that may run at once. */
  prefetch?: number;
  /** Hears of what handlers throw, and of answers that came too late. */
  onError?: (error: unknown, event: EventRecord) => void;
}

/** How topics are followed, without a group. */
export interface TailOptions {
  /** Where to begin. Default: `"latest"`. */
  from?: From;
  /** A CEL expression. Default: none. */
  filter?: string;
  /** Events that may be here unread. Default: 256. */
  prefetch?: number;
  /**
   * Hears of events that are missing and will never come, after which the tail goes on. Without it
   * the tail ends with an error of code `gap`. Events that newer ones of their keys have replaced
   * (`compacted`) are only told, never an error.
   */
  onGap?: (gap: Gap) => void;
  /** Hears of payloads that are not what a typed topic says; without it, the tail ends. */
  onInvalid?: (error: UnreadablePayload) => void;
  /** Hears of each connection after the first: whether nothing is missing. */
  onResumed?: (resumed: { recovered: boolean }) => void;
  signal?: AbortSignal;
}

export function fromOpts(from: From | undefined): Partial<SubscribeFrameOpts> {
  if (from === undefined) {
    return {};
  }
  if (typeof from === "string") {
    return { from };
  }
  if (from instanceof Date) {
    return { from: "ts", ts: from.getTime() };
  }
  return { from: "after_id", after_id: from.afterId };
}

/** What the options mean to a server. */
export function membershipWish(source: Source, options: GroupOptions, prefetch: number) {
  const { group, from, filter, maxAttempts, mode } = options;
  const leaseMs = Math.round(millis(options.ackTimeout ?? LEASE_MS));
  const wish: MembershipWish = {
    topics: namesOf(source),
    group,
    opts: {
      ...fromOpts(from),
      ...(filter === undefined ? {} : { filter }),
      ...(maxAttempts === undefined ? {} : { max_attempts: maxAttempts }),
      ...(mode === undefined ? {} : { mode }),
      ack_timeout_ms: leaseMs,
      // Credits bound what is here; this one bounds what is not durably answered.
      max_in_flight: PREFETCH_MAX,
    },
    prefetch: Math.min(Math.max(1, Math.floor(options.prefetch ?? prefetch)), PREFETCH_MAX),
    leaseMs,
    processingMs: millis(options.maxProcessing ?? PROCESSING_MS),
  };
  return wish;
}
