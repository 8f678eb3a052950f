import { PromError } from "./error.js";
import type { EventRecord } from "./frame.js";
import { describeIssues, type StandardSchema } from "./standard-schema.js";

/** How events of a topic look. */
export interface TopicOptions<In, Out> {
  /** A validator of any library that speaks Standard Schema. */
  schema: StandardSchema<In, Out>;
  /** The version of the schema, sent as `x-schema-version`. Default: the server decides. */
  version?: number;
  /** The key of a payload, unless the publisher gives one. Default: none. */
  key?: (payload: Out) => string;
}

/** A topic whose payloads have a type: `In` as it is published and stored, `Out` as it is read. */
export interface Topic<In = unknown, Out = In> {
  readonly name: string;
  readonly schema: StandardSchema<In, Out>;
  readonly version: number | undefined;
  key?(payload: Out): string;
}

/** Declares a topic with a type. Declaring changes nothing on a server. */
export function topic<In, Out = In>(name: string, options: TopicOptions<In, Out>): Topic<In, Out> {
  const { schema, version, key } = options;
  return { name, schema, version, ...(key === undefined ? {} : { key }) };
}

/** A topic or a pattern by name, a typed topic, or several of them. */
export type Source = string | Topic | readonly (string | Topic)[];

/** What the payloads of a source are: known of typed topics, `unknown` of names. */
export type PayloadOf<S> =
  S extends Topic<unknown, infer Out>
    ? Out
    : S extends readonly (infer Each)[]
      ? PayloadOf<Each>
      : unknown;

/** What may be published to a topic. */
export type InputOf<T> = T extends Topic<infer In, unknown> ? In : unknown;

export const SCHEMA_VERSION = "x-schema-version";

/** Names and patterns of a source, as the protocol wants them. */
export function namesOf(source: Source): string[] {
  const list: readonly (string | Topic)[] =
    typeof source === "string" || "name" in source ? [source] : source;
  return list.map((one) => (typeof one === "string" ? one : one.name));
}

/** Validates what is read from typed topics; events of other topics pass as they are. */
export class Decoder {
  readonly #topics = new Map<string, Topic>();

  constructor(source: Source) {
    const list: readonly (string | Topic)[] =
      typeof source === "string" || "name" in source ? [source] : source;
    for (const one of list) {
      if (typeof one !== "string") {
        this.#topics.set(one.name, one);
      }
    }
  }

  /** The event with its payload as the reader wants it. A tombstone stays one. */
  async decode(event: EventRecord): Promise<EventRecord> {
    const typed = this.#topics.get(event.topic);
    if (typed === undefined || event.payload === null) {
      return event;
    }
    try {
      return { ...event, payload: await validated(typed, event.payload, event.id) };
    } catch (error) {
      throw error instanceof PromError ? new UnreadablePayload(event, error) : error;
    }
  }
}

/** An event was delivered whose payload is not what its reader expects. */
export class UnreadablePayload extends Error {
  override readonly name = "UnreadablePayload";
  /** The event, as it is stored. */
  readonly event: EventRecord;

  constructor(event: EventRecord, cause: PromError) {
    super(cause.message, { cause });
    this.event = event;
  }
}

/** The value as the schema gives it back. */
export async function validated<Out>(
  typed: Topic<unknown, Out>,
  value: unknown,
  id?: string,
): Promise<Out> {
  const verdict = await typed.schema["~standard"].validate(value);
  if (verdict.issues !== undefined) {
    const what = `payload of ${typed.name}: ${describeIssues(verdict.issues)}`;
    throw new PromError("schema_invalid", what, { id });
  }
  return verdict.value;
}
