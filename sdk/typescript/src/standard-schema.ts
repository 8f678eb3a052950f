/**
 * The part of Standard Schema (https://standardschema.dev) that is used here: zod, valibot, arktype
 * and others implement it, so that none of them is a dependency.
 */
export interface StandardSchema<In = unknown, Out = In> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Verdict<Out> | Promise<Verdict<Out>>;
    readonly types?: { readonly input: In; readonly output: Out } | undefined;
    /** Standard JSON Schema: the same as a document, if the library can write it. */
    readonly jsonSchema?:
      | { readonly input: (options: { target: string }) => Record<string, unknown> }
      | undefined;
  };
}

export type Verdict<Out> =
  | { readonly value: Out; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

export interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** `cpu_pct: expected a number; host: missing`. */
export function describeIssues(issues: readonly Issue[]): string {
  const place = (issue: Issue) =>
    (issue.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return issues
    .map((issue) => [place(issue), issue.message].filter((part) => part !== "").join(": "))
    .join("; ");
}
