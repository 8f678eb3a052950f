/** The codes of PROTOCOL.md, section 6, as a server sends them. */
export const SERVER_CODES = [
  "bad_request",
  "too_complex",
  "invalid_event",
  "invalid_filter",
  "token_in_query",
  "unknown_op",
  "unauthorized",
  "token_expired",
  "forbidden",
  "origin_refused",
  "not_found",
  "unknown_id",
  "method_not_allowed",
  "slow_request",
  "conflict",
  "incompatible",
  "id_conflict",
  "stale_token",
  "fenced",
  "quota",
  "precondition_failed",
  "too_large",
  "uri_too_long",
  "unsupported_media_type",
  "host_refused",
  "schema_invalid",
  "rate_limited",
  "limit",
  "headers_too_large",
  "internal",
  "not_ready",
  "storage_failed",
  "read_only",
  "going_away",
  "indeterminate",
  "no_space",
  "slow_consumer",
  "idle",
  "protocol_error",
  "invalid_utf8",
  "binary_frame",
] as const;

/** Codes that only a client comes to. */
export const CLIENT_CODES = [
  /** Nothing listens there, or it is not a Promethean server. */
  "unreachable",
  /** The connection went away before an answer came. */
  "disconnected",
  /** It took longer than was allowed. */
  "timeout",
  /** The bus, or the subscription, was closed. */
  "closed",
  /** Events are missing that will never come. */
  "gap",
] as const;

/** The codes that are known; a newer server may have more. */
export type ErrorCode =
  | (typeof SERVER_CODES)[number]
  | (typeof CLIENT_CODES)[number]
  | (string & Record<never, never>);

const RETRYABLE: ReadonlySet<string> = new Set([
  "slow_request",
  "rate_limited",
  "limit",
  "not_ready",
  "storage_failed",
  "read_only",
  "going_away",
  "indeterminate",
  "no_space",
  "slow_consumer",
  "unreachable",
  "disconnected",
  "timeout",
]);

/** What else is known about a failure. */
export interface ErrorDetail {
  /** When the server wants to be asked again. */
  retryMs?: number | undefined;
  /** The event that it is about. */
  id?: string | undefined;
  /** The problem document (RFC 9457), of HTTP. */
  problem?: unknown;
  /** Whether the same request may succeed later. Default: what is known about the code. */
  retryable?: boolean | undefined;
  cause?: unknown;
}

/** Everything that fails here fails with this: tell failures apart by `code`, which is stable. */
export class PromError extends Error {
  override readonly name = "PromError";
  readonly code: ErrorCode;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  readonly retryMs: number | undefined;
  readonly id: string | undefined;
  readonly problem: unknown;

  constructor(code: ErrorCode, message: string, detail: ErrorDetail = {}) {
    super(`${code}: ${message}`, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.code = code;
    this.retryable = detail.retryable ?? RETRYABLE.has(code);
    this.retryMs = detail.retryMs;
    this.id = detail.id;
    this.problem = detail.problem;
  }
}

/** A code as a server spells it, known or not; what is none is a fault of the server. */
export function codeOf(text: unknown): ErrorCode {
  return typeof text === "string" && /^[a-z][a-z0-9_]*$/.test(text) ? text : "internal";
}

/** The words of whatever was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
