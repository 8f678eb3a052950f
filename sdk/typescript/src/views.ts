import { PromError } from "./error.js";
import { ask, askLines, type HttpOptions } from "./http.js";

/** What every document of a view has, besides its own members. */
export interface DocumentHead {
  _key: string;
  /** Event time of the event that wrote it. */
  _ts: number;
  /** Where that event stands: `topic/partition/offset`. */
  _pos: string;
  /** Its version, in a view with versions. */
  _v?: number;
}

export type ViewDocument<T = Record<string, unknown>> = DocumentHead & T;

/** An event, as the past tells of it. */
export interface EventRef {
  id: string;
  position: string;
  ts: number;
  appended_at: number;
  caused_by?: string[];
}

/** A document at a moment, or why there is none. */
export interface Past<T = ViewDocument> {
  view: string;
  key: string;
  outcome: "document" | "deleted" | "never_existed" | "before_history";
  document?: T;
  /** The events that it was built from, the last one last; the newest hundred of them. */
  events?: EventRef[];
  /** How many events were folded, where that is not one. */
  folded?: number;
  /** False if events in between may be gone. */
  complete?: boolean;
  /** With `before_history`: the first place that is kept, and the key's first event there. */
  history_starts_at?: { position: string; first_of_key: EventRef | null };
}

/** By which times a moment is told. */
export interface Told {
  /**
   * `append` is what was known then; `event` what had happened by then, as it is known today.
   * Default: `append`.
   */
  by?: "append" | "event";
}

/** One change of a document, with the event behind it. */
export interface Change {
  op: "add" | "remove" | "replace";
  path: string;
  value?: unknown;
  was?: unknown;
  event: EventRef | null;
}

/**
 * A time, also as people write it (`15m ago`, `yesterday 14:00`, in UTC), or a position,
 * `topic/partition/offset`.
 */
export type Moment = Date | string;

function moment(at: Moment): string {
  return typeof at === "string" ? at : String(at.getTime());
}

/** Views of a server: as they are, and as they were. Needs the right to read their topics. */
export class Views {
  readonly #http: HttpOptions;

  constructor(http: HttpOptions) {
    this.#http = http;
  }

  /** The document of a key; `minPosition` waits until that event is in the view. */
  async get<T = Record<string, unknown>>(
    view: string,
    key: string,
    options: { minPosition?: string; version?: number } = {},
  ): Promise<ViewDocument<T>> {
    const query = { min_position: options.minPosition, version: options.version };
    return (await ask(this.#http, { path: path(view, "snap", key), query })) as ViewDocument<T>;
  }

  /** Documents by declared fields, such as `{ status: "alive", "pid.ge": 100 }`, page by page. */
  async *list<T = Record<string, unknown>>(
    view: string,
    where: Readonly<Record<string, string | number | boolean>> = {},
    options: { sort?: string } = {},
  ): AsyncGenerator<ViewDocument<T>> {
    const fields = Object.entries(where).map(([name, value]) => [name, String(value)]);
    let page: string | undefined;
    do {
      const query = { ...Object.fromEntries(fields), sort: options.sort, limit: 500, page };
      const answer = (await ask(this.#http, { path: path(view, "list"), query })) as {
        documents: ViewDocument<T>[];
        next: string | null;
      };
      yield* answer.documents;
      page = answer.next ?? undefined;
    } while (page !== undefined);
  }

  /** The document of a key at an earlier moment, in a version of the topic's schema if one is named. */
  async at<T = Record<string, unknown>>(
    view: string,
    key: string,
    at: Moment,
    options: Told & { version?: number } = {},
  ): Promise<Past<ViewDocument<T>>> {
    const query = { at: moment(at), ...options };
    return (await ask(this.#http, { path: path(view, "at", key), query })) as Past<ViewDocument<T>>;
  }

  /**
   * The events of a key up to a moment, folded by a CEL expression over `state`, which is null at first,
   * and the event: `state == null ? payload.n : state + payload.n`.
   */
  async reduce<T = unknown>(
    view: string,
    key: string,
    at: Moment,
    expression: string,
    options: Told & { version?: number } = {},
  ): Promise<Past<T>> {
    const query = { at: moment(at), reduce: expression, ...options };
    return (await ask(this.#http, { path: path(view, "at", key), query })) as Past<T>;
  }

  /**
   * All documents of a view at an earlier time, as they come, in no order that means anything. If what
   * some keys were is not kept any more, that is told to `onIncomplete` at the end, or is an error.
   */
  async *atAll<T = Record<string, unknown>>(
    view: string,
    at: Moment,
    options: Told & { onIncomplete?: (unknown: number) => void } = {},
  ): AsyncGenerator<ViewDocument<T>> {
    const query = { at: moment(at), by: options.by };
    for await (const line of askLines(this.#http, { path: path(view, "at"), query })) {
      // A document may have a member of that name; only the last line has no key.
      if ("_key" in (line as object)) {
        yield line as ViewDocument<T>;
        continue;
      }
      const { end } = line as { end: ScanEnd };
      if (end.error !== undefined) {
        throw new PromError("unreachable", `the answer broke off: ${end.error}`);
      }
      if (!end.complete && options.onIncomplete === undefined) {
        const text = `not complete: of ${end.before_history} keys nothing is kept, or of more`;
        throw new PromError("gap", text);
      }
      if (!end.complete) {
        options.onIncomplete?.(end.before_history);
      }
      return;
    }
    throw new PromError("unreachable", "the answer broke off before its last line");
  }

  /** What has changed between two moments. */
  async diff(
    view: string,
    key: string,
    from: Moment,
    to: Moment = "now",
    options: Told = {},
  ): Promise<Change[]> {
    const query = { from: moment(from), to: moment(to), ...options };
    const answer = await ask(this.#http, { path: path(view, "diff", key), query });
    return (answer as { patch: Change[] }).patch;
  }

  /** Since which event a member is what it is, named by a JSON pointer such as `/status`. */
  async why(
    view: string,
    key: string,
    pointer?: string,
  ): Promise<{ pointer: string; value?: unknown; was?: unknown; event: EventRef | null }[]> {
    const answer = await ask(this.#http, { path: path(view, "why", key), query: { pointer } });
    return (answer as { members: never[] }).members;
  }

  /** The events of a key, newest first, with what each has changed. */
  async history(
    view: string,
    key: string,
    options: { limit?: number } = {},
  ): Promise<(EventRef & { effect: string; patch: Change[] })[]> {
    const query = { limit: options.limit };
    const answer = await ask(this.#http, { path: path(view, "history", key), query });
    return (answer as { steps: never[] }).steps;
  }
}

/** The last line of a whole view. */
interface ScanEnd {
  complete: boolean;
  before_history: number;
  error?: string;
}

function path(view: string, resource: string, key?: string): string {
  const end = key === undefined ? "" : `/${encodeURIComponent(key)}`;
  return `/views/${encodeURIComponent(view)}/${resource}${end}`;
}
