import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { harness } from "../src/harness/index.js";
import { type Delivery, PromError, topic } from "../src/node/index.js";
import { take } from "./signals.js";

test("events come one by one, and each is answered", async () => {
  await using h = await harness();
  const Beat = topic("beat", { schema: z.object({ pid: z.number() }) });
  await h.bus.publish("beat", { pid: "not a number" });
  for (const pid of [1, 2, 3]) {
    await h.bus.publish(Beat, { pid });
  }
  const pids: number[] = [];
  for await (const event of h.bus.stream(Beat, { group: "g", from: "earliest" })) {
    if (event.payload.pid === 2 && event.attempt === 1) {
      await event.retry({ after: 0 });
      continue;
    }
    pids.push(event.payload.pid);
    await event.ack();
    if (pids.length === 3) {
      break;
    }
  }
  assert.deepEqual(pids, [1, 3, 2]);
  await h.settled();
  const letters = await h.bus.deadLetters.list({ group: "g" });
  assert.equal(letters.length, 1);
});

test("what was not answered goes to others when the loop is left", async () => {
  await using h = await harness();
  for (const n of [1, 2, 3]) {
    await h.bus.publish("a", n);
  }
  const leave = async () => {
    for await (const event of h.bus.stream("a", { group: "g", from: "earliest" })) {
      assert.equal(event.payload, 1);
      throw new Error("the body failed");
    }
  };
  await assert.rejects(leave(), /the body failed/);
  const stream = h.bus.stream("a", { group: "g" });
  const events = await take(stream, 3);
  assert.deepEqual(events.map((event) => event.payload).sort(), [1, 2, 3]);
  await Promise.all(events.map((event) => event.ack()));
  await stream.return();
  await h.settled();
});

test("no more is here than was asked for", async () => {
  await using h = await harness();
  for (let n = 0; n < 10; n += 1) {
    await h.bus.publish("a", n);
  }
  await using stream = h.bus.stream("a", { group: "g", from: "earliest", prefetch: 2 });
  const [first, second] = (await take(stream, 2)) as [Delivery, Delivery];
  const out = async () => (await h.bus.groups.lag("g"))[0]?.partitions[0]?.out;
  assert.equal(await out(), 2);
  await first.ack();
  const [third] = await take(stream, 1);
  assert.equal(third?.payload, 2);
  assert.equal(await out(), 2);
  await Promise.all([second.ack(), third?.ack()]);
  const rest = await take(stream, 2);
  assert.deepEqual(
    rest.map((event) => event.payload),
    [3, 4],
  );
});

test("an event is answered once; what is lost cannot be answered", async () => {
  await using h = await harness();
  await h.bus.publish("a", 1);
  await using stream = h.bus.stream("a", { group: "g", from: "earliest" });
  const [event] = (await take(stream, 1)) as [Delivery];
  assert.equal(event.signal.aborted, false);
  h.dropConnections();
  const [again] = (await take(stream, 1)) as [Delivery];
  assert.equal(event.signal.aborted, true);
  const code = (wanted: string) => (error: unknown) =>
    error instanceof PromError && error.code === wanted;
  await assert.rejects(event.ack(), code("stale_token"));
  assert.deepEqual([again.id, again.attempt], [event.id, 2]);
  await again.ack();
  await assert.rejects(again.ack(), code("conflict"));
  await h.settled();
});

test("what is published for an event names it", async () => {
  await using h = await harness();
  await using stream = h.bus.stream("a", { group: "g" });
  await stream.ready;
  const cause = await h.bus.publish("a", 1);
  const [event] = (await take(stream, 1)) as [Delivery];
  const record = await event.publish("b", 2);
  assert.deepEqual(record.caused_by, [cause.id]);
  await event.park("seen enough");
  await h.settled();
});

test("a refused stream throws, a closed bus ends it", async () => {
  await using h = await harness();
  const refused = h.bus.stream("a", { group: "g", filter: "((" });
  await assert.rejects(refused.next(), PromError);
  assert.deepEqual(await refused.next(), { done: true, value: undefined });
  const bus = await h.connect();
  const stream = bus.stream("a", { group: "g" });
  await stream.ready;
  const end = stream.next();
  await bus.close();
  assert.deepEqual(await end, { done: true, value: undefined });
});
