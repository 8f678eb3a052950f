import { type Duration, millis } from "./duration.js";
import { REASON_CALLS_MAX, REASON_CHARACTERS_MAX } from "./limits.js";
import { UnreadablePayload } from "./topic.js";

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
  if (thrown instanceof Outcome) {
    return thrown.message.slice(0, REASON_CHARACTERS_MAX);
  }
  // What is wrong with a payload is found here, not where the handler went wrong.
  const calls = thrown instanceof UnreadablePayload ? [] : callsOf(thrown);
  const lines = [`${thrown.name}: ${thrown.message}`, ...calls];
  return lines.join("\n").slice(0, REASON_CHARACTERS_MAX);
}

/** The innermost calls. Of files only the name and its folder: the rest is nobody's business. */
function callsOf(error: Error): string[] {
  const calls = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  return calls
    .slice(0, REASON_CALLS_MAX)
    .map((line) => line.trim().replace(/(?:\w+:\/\/)?[^\s()]*\/([^/\s()]+\/[^/\s()]+)/g, "$1"));
}
