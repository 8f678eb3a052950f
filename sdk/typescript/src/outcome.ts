import { type Duration, millis } from "./duration.js";
import { REASON_CHARACTERS_MAX } from "./limits.js";

/** What becomes of an event, other than being done. Handlers throw or return one. */
export abstract class Outcome extends Error {}

/** Try again, now or later. Counts as an attempt. */
export class Retry extends Outcome {
  override readonly name = "Retry";
  /** Default: as the group's backoff says. */
  readonly afterMs: number | undefined;

  constructor(options: { after?: Duration; reason?: string } = {}) {
    super(options.reason ?? "to be tried again");
    this.afterMs = options.after === undefined ? undefined : Math.round(millis(options.after));
  }
}

/** Trying again is useless: to the dead letters at once, with the reason. */
export class Park extends Outcome {
  override readonly name = "Park";
}

/** Nothing to do here: done, without having been handled. */
export class Skip extends Outcome {
  override readonly name = "Skip";
}

/** What a dead letter says about whatever was thrown: the error, and where it came from. */
export function reasonOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) {
    return String(thrown).slice(0, REASON_CHARACTERS_MAX);
  }
  const head = thrown instanceof Outcome ? thrown.message : `${thrown.name}: ${thrown.message}`;
  return head.slice(0, REASON_CHARACTERS_MAX);
}
