import type { EventRecord } from "./frame.js";

/** Knows which event is being handled, so that what is published meanwhile names it. */
export interface CauseScope {
  run<T>(event: EventRecord, body: () => T): T;
  current(): EventRecord | undefined;
}

/** Browsers cannot follow a call through its awaits: there, `ctx.publish` says it. */
export const explicitCauses: CauseScope = {
  run: (_event, body) => body(),
  current: () => undefined,
};
