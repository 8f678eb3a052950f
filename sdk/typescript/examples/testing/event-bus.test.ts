/**
 * The two bus tests of the notes, against the real server: no sleeping, and what they mean to say is
 * what they check.
 *
 *     npm run build && node --test dist/examples/testing/
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { harness } from "promethean/harness";

test("publish -> subscribe (earliest) delivers and advances cursor", async () => {
  await using h = await harness();
  const bus = h.eventBus();
  const seen: unknown[] = [];
  await bus.subscribe(
    "t.a",
    "g1",
    async (e) => {
      seen.push(e.payload);
    },
    { from: "earliest" },
  );

  await bus.publish("t.a", "one");
  const two = await bus.publish("t.a", "two");

  await h.settled();
  assert.deepEqual(seen, ["one", "two"]);
  const cursor = await bus.getCursor("t.a", "g1");
  assert.equal(cursor?.lastId, two.id);
});

test("nack leaves cursor; event is retried", async () => {
  await using h = await harness();
  const bus = h.eventBus();
  const first = await bus.publish("t.b", "before");
  const attempts: number[] = [];
  let cursorAtRetry: unknown;
  await bus.subscribe(
    "t.b",
    "g1",
    async (_e, ctx) => {
      attempts.push(ctx.attempt);
      if (ctx.attempt === 1) {
        throw new Error("boom");
      }
      cursorAtRetry = (await bus.getCursor("t.b", "g1"))?.lastId;
    },
    { from: "afterId", afterId: first.id },
  );

  const event = await bus.publish("t.b", "x");

  await h.settled();
  assert.deepEqual(attempts, [1, 2]);
  assert.equal(cursorAtRetry, first.id);
  assert.equal((await bus.getCursor("t.b", "g1"))?.lastId, event.id);
});
