/** A time span: milliseconds, or a number with a unit such as `"500ms"`, `"5s"`, `"2m"`, `"1h"`. */
export type Duration = number | `${number}${"ms" | "s" | "m" | "h" | "d"}`;

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Milliseconds of a time span. */
export function millis(duration: Duration): number {
  if (typeof duration === "number") {
    if (duration >= 0) {
      return duration;
    }
  } else {
    const [, count, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(duration) ?? [];
    const factor = UNITS_MS[unit ?? ""];
    if (factor !== undefined) {
      return Number(count) * factor;
    }
  }
  throw new TypeError(`${JSON.stringify(duration)} is no time span; write "500ms", "5s" or "2m"`);
}
