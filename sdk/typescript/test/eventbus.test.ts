import assert from "node:assert/strict";
import { test } from "node:test";
import { harness } from "../src/harness/index.js";
import { type EventBus, RemoteEventBus } from "../src/node/eventbus.js";
import { Collected } from "./signals.js";

test("the options of the notes mean what they say", async () => {
  await using h = await harness();
  const bus: EventBus = h.eventBus();
  const first = await bus.publish("t", 1, { tags: ["#a"], key: "k" });
  await bus.publish("t", 2, { caused_by: [first.id] });
  await bus.publish("u", 3);
  const seen = new Collected<unknown>();
  const unsubscribe = await bus.subscribe(
    "t",
    "g",
    async (event, ctx) => {
      assert.deepEqual(ctx, { attempt: 1, maxAttempts: 7 });
      seen.add(event.payload);
    },
    {
      from: "afterId",
      afterId: first.id,
      topics: ["u"],
      maxAttempts: 7,
      batchSize: 10,
      maxInFlight: 5,
      ackTimeoutMs: 5_000,
      filter: (event) => event.payload !== 3,
    },
  );
  await bus.publish("t", 4);
  assert.deepEqual((await seen.count(2)).sort(), [2, 4]);
  await h.settled();
  await unsubscribe();
});

test("cursors are read and moved", async () => {
  await using h = await harness();
  const bus = h.eventBus();
  assert.equal(await bus.getCursor("t", "g"), null);
  const seen = new Collected<unknown>();
  await bus.subscribe("t", "g", async (event) => seen.add(event.payload), { from: "earliest" });
  const first = await bus.publish("t", 1);
  const second = await bus.publish("t", 2);
  await h.settled();
  assert.deepEqual(await bus.getCursor("t", "g"), {
    topic: "t",
    lastId: second.id,
    lastTs: second.ts,
  });
  await bus.setCursor("t", "g", { topic: "t", lastId: first.id });
  assert.deepEqual(await seen.count(3), [1, 2, 2]);
  await h.settled();
});

test("with manualAck an event is done when it is acked, or comes again when it is refused", async () => {
  await using h = await harness();
  const bus = h.eventBus();
  const attempts = new Collected<number>();
  await bus.subscribe(
    "t",
    "g",
    async (event, ctx) => {
      attempts.add(ctx.attempt);
      queueMicrotask(async () => {
        const answer =
          ctx.attempt === 1
            ? await bus.nack(event.topic, "g", event.id, "not now")
            : await bus.ack(event.topic, "g", event.id);
        assert.equal(answer.ok, true);
      });
    },
    { from: "earliest", manualAck: true },
  );
  const { id } = await bus.publish("t", 1);
  await h.settled();
  assert.deepEqual(attempts.items, [1, 2]);
  const late = await bus.ack("t", "g", id);
  assert.equal(late.ok, false);
  assert.match(late.err ?? "", /^unknown_id/);
});

test("it stands on its own: one constructor, as in the notes", async () => {
  await using h = await harness();
  await using bus = new RemoteEventBus({ url: h.url });
  const record = await bus.publish("t", { a: 1 });
  assert.deepEqual(record.payload, { a: 1 });
});
