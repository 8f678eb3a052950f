import { ask, type HttpOptions } from "./http.js";
import type { Topic } from "./topic.js";

/** A schema as a JSON document. */
export type SchemaDocument = Readonly<Record<string, unknown>>;

export interface RegisterOptions {
  /** The schema as JSON Schema 2020-12. Default: what the validator of the topic says of itself. */
  document?: SchemaDocument;
  /** Why it is to be registered although something speaks against it. */
  force?: string;
  /** How many stored events it is tried on: the newest so many, or all. */
  sample?: number | "all";
}

/** What became of a registration. */
export interface RegisteredSchema {
  topic: string;
  version: number;
  /** Whether it is new; the same document again is the same version. */
  added: boolean;
}

/** The schemas that the server checks events against. Changing them needs `admin:schemas`. */
export class Schemas {
  readonly #http: HttpOptions;

  constructor(http: HttpOptions) {
    this.#http = http;
  }

  /** Registers the schema of a typed topic, as the version that it says, if it says one. */
  async register<In, Out>(
    typed: Topic<In, Out>,
    options: RegisterOptions = {},
  ): Promise<RegisteredSchema> {
    const { document, ...rest } = options;
    const version = typed.version === undefined ? {} : { version: typed.version };
    const answer = await ask(this.#http, {
      method: "POST",
      path: `/registry/${encodeURIComponent(typed.name)}/versions`,
      body: { schema: document ?? documentOf(typed), ...version, ...rest },
    });
    const { topic, version: number, added } = answer as RegisteredSchema;
    return { topic, version: number, added };
  }
}

/** What is stored is what publishers say, hence the input of the schema. */
function documentOf<In, Out>(typed: Topic<In, Out>): SchemaDocument {
  const { jsonSchema, vendor } = typed.schema["~standard"];
  if (jsonSchema === undefined) {
    throw new TypeError(
      `the ${vendor} schema of ${typed.name} does not know itself as JSON Schema: give it as ` +
        "`document`, or wrap it (valibot: toStandardJsonSchema of @valibot/to-json-schema)",
    );
  }
  return jsonSchema.input({ target: "draft-2020-12" });
}
