/** Every bound of the client, in one place. Units come last in the name. */

/** Largest frame a server takes, unless its `HELLO` says otherwise. */
export const FRAME_BYTES_MAX = 1024 * 1024;
/** Largest frame a client takes from a server. */
export const SERVER_FRAME_BYTES_MAX = 16 * 1024 * 1024;
/** Most events that wait for the answer to their publish. */
export const PENDING_EVENTS_MAX = 10_000;
/** Most bytes of them. */
export const PENDING_BYTES_MAX = 64 * 1024 * 1024;
/** Most events of one atomic publish. */
export const BATCH_EVENTS_MAX = 1_000;
/** Most events out to one subscription at once. */
export const PREFETCH_MAX = 1_000;
/** Most tokens of one `ACKS`. */
export const ACKS_TOKENS_MAX = 1_000;

/** The first wait before connecting again, on average half of it. */
export const BACKOFF_FIRST_MS = 250;
/** The longest one. */
export const BACKOFF_MAX_MS = 20_000;
/** A socket that is not open, greeted and known after this is given up. */
export const HANDSHAKE_MS = 10_000;
/** How long `connect` tries before it fails. */
export const CONNECT_MS = 10_000;
/** How long a publish may take, with everything that is tried for it. */
export const PUBLISH_MS = 30_000;
/** How long an HTTP request may take. */
export const HTTP_MS = 30_000;
/** A connection over which nothing came for so long is asked whether it lives. */
export const QUIET_MS = 25_000;
/** It is given up if a question is not answered after this. */
export const ANSWER_MS = 30_000;

/** How long a lease lasts. */
export const LEASE_MS = 30_000;
/** How long a lease is renewed for a handler that does not return. */
export const PROCESSING_MS = 5 * 60_000;
/** How long `stop` waits for handlers that run. */
export const DRAIN_MS = 10_000;
/** How long `caughtUp` and `settled` wait. */
export const CAUGHT_UP_MS = 10_000;

/** Most events of one page of a resource. */
export const PAGE_EVENTS_MAX = 1_000;
/** Most dead letters of one listing. */
export const DEAD_LETTERS_MAX = 10_000;

/** What of an error travels with a refused event. */
export const REASON_CHARACTERS_MAX = 1_000;
/** And so many of the calls that led to it. */
export const REASON_CALLS_MAX = 5;
