import type { Connection } from "./connection.js";
import type { Cursor, EventRecord } from "./frame.js";
import { ask, type HttpOptions } from "./http.js";
import type { TailOptions } from "./subscribe-options.js";
import { Tail } from "./tail.js";
import { Decoder, namesOf, type Topic } from "./topic.js";

/** What comes next for one who follows a topic. */
export type Followed<T> =
  /** The newest state of a key, with the offset in the topic that it comes from. */
  | { kind: "state"; event: EventRecord<T>; offset: number }
  /** The states are over: what follows are the topic's events. */
  | { kind: "live" }
  /** An event that came after the snapshot. */
  | { kind: "event"; event: EventRecord<T> };

interface SnapshotPage {
  states: { offset: number; event: EventRecord }[];
  cursors: Cursor[];
  next: string | null;
}

/**
 * The newest state of each key, then every event after it. Nothing is missed and nothing comes twice,
 * also while events arrive and the snapshot grows. Deleted keys have no state.
 */
export async function* follow<T>(
  connection: Connection,
  http: HttpOptions,
  source: string | Topic,
  options: TailOptions,
): AsyncGenerator<Followed<T>> {
  const [topic] = namesOf(source);
  const decoder = new Decoder(source);
  // States that are newer than where the topic goes on: events up to them are in them.
  const newer = new Map<string, number>();
  let cursors: Cursor[] | undefined;
  let after: string | undefined;
  do {
    const path = `/snapshots/${encodeURIComponent(topic as string)}`;
    const page = (await ask(http, { path, query: { after, limit: 1_000 } })) as SnapshotPage;
    // The first page says where the topic goes on: the snapshot only grows meanwhile.
    cursors ??= page.cursors;
    const goesOn = new Map(cursors.map(({ partition, next }) => [partition, next]));
    for (const { offset, event } of page.states) {
      if (event.key && offset >= (goesOn.get(event.partition) ?? 0)) {
        newer.set(event.key, offset);
      }
      if (event.payload !== null) {
        const decoded = (await decoder.decode(event)) as EventRecord<T>;
        yield { kind: "state", event: decoded, offset };
      }
    }
    after = page.next ?? undefined;
  } while (after !== undefined);
  yield { kind: "live" };
  const tail = new Tail<T>(connection, source, options, cursors);
  try {
    for await (const event of tail) {
      const key = event.key ?? "";
      const known = newer.get(key);
      if (known !== undefined && event.offset <= known) {
        continue;
      }
      newer.delete(key);
      yield { kind: "event", event };
    }
  } finally {
    await tail.return();
  }
}
