import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Backoff } from "../src/backoff.js";
import { millis } from "../src/duration.js";
import { PromError, SERVER_CODES } from "../src/error.js";
import { newEventId } from "../src/event-id.js";
import { BACKOFF_MAX_MS } from "../src/limits.js";

const root = new URL("../../../../", import.meta.url);

test("codes are those of PROTOCOL.md, with what it says about trying again", () => {
  const text = readFileSync(new URL("PROTOCOL.md", root), "utf8");
  const rows = [...text.matchAll(/^\| `(\w+)` \| \d+ \| \d+ \| (yes|no) \|$/gm)];
  assert.deepEqual(rows.map((row) => row[1]).sort(), [...SERVER_CODES].sort());
  for (const [, code, retry] of rows) {
    const error = new PromError(code as (typeof SERVER_CODES)[number], "x");
    assert.equal(error.retryable, retry === "yes", code);
  }
});

test("ids are UUIDv7, in the order in which they are made", () => {
  const ids = Array.from({ length: 10_000 }, () => newEventId());
  for (const id of ids) {
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  }
  assert.deepEqual([...ids].sort(), ids);
  assert.equal(new Set(ids).size, ids.length);
  const ms = Number.parseInt(newEventId().replaceAll("-", "").slice(0, 12), 16);
  // More were made than fit into their milliseconds: the next ones are borrowed.
  assert.ok(Math.abs(ms - Date.now()) < 1_000, `${ms}`);
});

test("ids go on when the clock is set back", () => {
  const now = Date.now() + 60_000;
  const before = newEventId(now);
  assert.ok(newEventId(now - 30_000) > before);
});

test("waits grow up to a cap, and chance takes a part of them", () => {
  const longest = new Backoff(() => 1);
  const waits = Array.from({ length: 10 }, () => longest.nextMs());
  assert.deepEqual(waits.slice(0, 3), [250, 500, 1_000]);
  assert.equal(waits.at(-1), BACKOFF_MAX_MS);
  longest.reset();
  assert.equal(longest.nextMs(), 250);
  assert.equal(new Backoff(() => 0.5).nextMs(), 125);
});

test("time spans", () => {
  assert.deepEqual(
    [5, "5ms", "5s", "1.5m", "1h", "1d"].map((one) => millis(one as "5s")),
    [5, 5, 5_000, 90_000, 3_600_000, 86_400_000],
  );
  for (const wrong of ["", "5", "5 s", "s", "-5s", -1, Number.NaN]) {
    assert.throws(() => millis(wrong as "5s"), /time span/);
  }
});
