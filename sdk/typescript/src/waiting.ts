import { PromError } from "./error.js";

const FIRST_MS = 2;
const LONGEST_MS = 100;

/** Asks until there is nothing left to wait for; `check` says what is missing. */
export async function pollUntil(
  timeoutMs: number,
  check: () => Promise<string | undefined>,
): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  let pauseMs = FIRST_MS;
  for (;;) {
    const missing = await check();
    if (missing === undefined) {
      return;
    }
    if (performance.now() + pauseMs > deadlineMs) {
      throw new PromError("timeout", `after ${timeoutMs} ms, ${missing}`);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    pauseMs = Math.min(LONGEST_MS, pauseMs * 1.5);
  }
}
