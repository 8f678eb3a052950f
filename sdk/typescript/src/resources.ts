import type { Cursor, EventRecord, Gap } from "./frame.js";
import { ask, type HttpOptions } from "./http.js";
import { DEAD_LETTERS_MAX, PAGE_EVENTS_MAX } from "./limits.js";
import type { From } from "./subscribe-options.js";

/** How far a group is behind. */
export interface GroupLag {
  group: string;
  members: number;
  /** Events that are stored and not done. */
  events: number;
  /** Age of the oldest of them. */
  age_ms: number;
  partitions: {
    topic: string;
    partition: number;
    cursor: number;
    end: number;
    events: number;
    /** On lease. */
    out: number;
    holes: number;
    parked: number;
    age_ms: number;
  }[];
}

/** Where a group was moved, or would be. */
export interface SeekReport {
  applied: boolean;
  moves: { topic: string; partition: number; from: number; to: number; again: number }[];
}

/** An event that a group has given up. */
export interface DeadLetter {
  /** Of the dead letter, not of the event. */
  id: string;
  topic: string;
  partition: number;
  offset: number;
  group: string;
  /** The event, whole. */
  original: EventRecord | null;
  /** What the consumer last said. */
  err: string;
  /** `refused`, `lease_expired`, `member_lost`, `permanent` or `process_lost`. */
  reason: string;
  /** The same for errors that differ only in numbers, ids and quoted text. */
  fingerprint: string;
  ts: number;
  attempts: number;
}

/** What is known about groups. Needs `admin:ops.read`, and `admin:groups` to move one. */
export class Groups {
  readonly #http: HttpOptions;

  constructor(http: HttpOptions) {
    this.#http = http;
  }

  /** Of one group, or of every one. */
  async lag(group?: string): Promise<GroupLag[]> {
    const answer = await ask(this.#http, { path: "/lag", query: { group } });
    return (answer as { groups: GroupLag[] }).groups;
  }

  async cursors(group: string): Promise<Cursor[]> {
    const answer = await ask(this.#http, { path: "/cursors", query: { group } });
    return (answer as { cursors: Cursor[] }).cursors;
  }

  /** Says where the group would be moved; moves it only with `apply`. */
  async seek(
    group: string,
    to: From,
    options: { topics?: string; apply?: boolean } = {},
  ): Promise<SeekReport> {
    const goal =
      typeof to === "string" ? to : "afterId" in to ? { after_id: to.afterId } : undefined;
    const body = {
      to: goal ?? { ts: (to as Date).getTime() },
      ...(options.topics === undefined ? {} : { topics: options.topics }),
      apply: options.apply ?? false,
    };
    const path = `/groups/${encodeURIComponent(group)}/seek`;
    return (await ask(this.#http, { method: "POST", path, body })) as SeekReport;
  }
}

/** What groups have given up. Needs `admin:dlq`. */
export class DeadLetters {
  readonly #http: HttpOptions;

  constructor(http: HttpOptions) {
    this.#http = http;
  }

  /** Those that wait, oldest first by topic. `limit` is 10,000 unless it is said. */
  async list(
    query: { topic?: string; group?: string; fingerprint?: string; limit?: number } = {},
  ): Promise<DeadLetter[]> {
    const { limit: most = DEAD_LETTERS_MAX, ...which } = query;
    const found: DeadLetter[] = [];
    let after: string | undefined;
    do {
      const limit = Math.min(most - found.length, PAGE_EVENTS_MAX);
      const answer = await ask(this.#http, {
        path: "/dead-letters",
        query: { ...which, limit, after },
      });
      const page = answer as { dead_letters: DeadLetter[]; next?: string };
      found.push(...page.dead_letters);
      after = page.next;
    } while (after !== undefined && found.length < most);
    return found;
  }

  /** Back to the group that gave it up, and to no other. */
  async replay(id: string): Promise<void> {
    await ask(this.#http, { method: "POST", path: `/dead-letters/${id}/replay` });
  }

  /** Given up for good. */
  async discard(id: string): Promise<void> {
    await ask(this.#http, { method: "POST", path: `/dead-letters/${id}/discard` });
  }
}

/** What to read of a topic. */
export interface HistoryQuery {
  /** Append time of the first event. */
  since?: Date;
  /** Append time that the last one is before. */
  until?: Date;
  filter?: string;
  partition?: number;
  /** The place after the last event read, `topic/partition/offset`. */
  after?: string;
  /** Hears of what is not there any more. */
  onGap?: (gap: Gap) => void;
}

/** The stored events of a topic or pattern, oldest first by topic and partition, page by page. */
export async function* history(
  http: HttpOptions,
  topic: string,
  query: HistoryQuery,
): AsyncGenerator<EventRecord> {
  let after = query.after;
  do {
    const page = (await ask(http, {
      path: "/replay",
      query: {
        topic,
        from: query.since?.getTime(),
        until: query.until?.getTime(),
        filter: query.filter,
        partition: query.partition,
        limit: 500,
        after,
      },
    })) as { events: EventRecord[]; gaps?: Gap[]; next?: string | null };
    for (const gap of page.gaps ?? []) {
      query.onGap?.(gap);
    }
    yield* page.events;
    after = page.next ?? undefined;
  } while (after !== undefined);
}

/** The newest event of each key; keys that are gone, or never were, are left out. */
export async function latestByKey(
  http: HttpOptions,
  topic: string,
  keys: readonly string[],
): Promise<Map<string, EventRecord>> {
  const found = new Map<string, EventRecord>();
  let asked = keys;
  for (;;) {
    const answer = await ask(http, { path: "/latest-by-key", query: { topic, key: asked } });
    const page = answer as { events: Record<string, EventRecord | null>; left?: string[] };
    for (const [key, event] of Object.entries(page.events)) {
      if (event !== null) {
        found.set(key, event);
      }
    }
    // What an answer has no room for is asked for again; each has one at least.
    const left = page.left ?? [];
    if (left.length === 0 || left.length >= asked.length) {
      return found;
    }
    asked = left;
  }
}
