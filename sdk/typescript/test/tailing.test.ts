import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import type { Gap } from "../src/frame.js";
import { harness } from "../src/harness/index.js";
import { Bus, type PromError, topic, UnreadablePayload } from "../src/node/index.js";
import { ScriptedServer } from "./scripted-server.js";
import { Collected, take } from "./signals.js";

const payloads = (events: { payload: unknown }[]) => events.map((event) => event.payload);

test("a tail begins where it is told to", async () => {
  await using h = await harness();
  const first = await h.bus.publish("a.x", 1);
  await h.bus.publish("a.x", 2);
  await using latest = h.bus.tail("a.*");
  await latest.ready;
  await h.bus.publish("a.x", 3);
  await h.bus.publish("a.y", 4);
  assert.deepEqual(payloads(await take(latest, 2)), [3, 4]);
  await using earliest = h.bus.tail("a.x", { from: "earliest", filter: "offset != 1" });
  assert.deepEqual(payloads(await take(earliest, 2)), [1, 3]);
  await using after = h.bus.tail("a.x", { from: { afterId: first.id } });
  assert.deepEqual(payloads(await take(after, 2)), [2, 3]);
  await using since = h.bus.tail("a.x", { from: new Date(0) });
  assert.deepEqual(payloads(await take(since, 3)), [1, 2, 3]);
});

test("a tail goes on where it was, also in topics that had nothing, and in new ones", async () => {
  await using h = await harness();
  const other = await h.connect();
  await h.bus.publish("a.x", 0);
  await h.bus.publish("a.quiet", 0);
  const resumed = new Collected<{ recovered: boolean }>();
  await using tail = h.bus.tail("a.*", { onResumed: resumed.add });
  await tail.ready;
  await h.bus.publish("a.x", 1);
  assert.deepEqual(payloads(await take(tail, 1)), [1]);
  for (let round = 0; round < 3; round += 1) {
    h.dropConnections();
    await other.publishAll([
      { topic: "a.x", payload: `x${round}` },
      { topic: "a.quiet", payload: `quiet${round}` },
      { topic: `a.new${round}`, payload: `new${round}` },
    ]);
    const events = payloads(await take(tail, 3)).sort();
    assert.deepEqual(events, [`new${round}`, `quiet${round}`, `x${round}`]);
  }
  assert.deepEqual(await resumed.count(3), Array(3).fill({ recovered: true }));
});

test("another store is a gap: an error, unless somebody hears of it", async () => {
  await using h = await harness();
  await h.bus.publish("a", "old");
  const gaps = new Collected<Gap>();
  const told = h.bus.tail("a", { from: "earliest", onGap: gaps.add });
  const untold = h.bus.tail("a", { from: "earliest" });
  assert.deepEqual(payloads([...(await take(told, 1)), ...(await take(untold, 1))]), [
    "old",
    "old",
  ]);
  // In memory: everything is gone.
  await h.restart();
  await h.bus.publish("a", "new");
  assert.deepEqual(payloads(await take(told, 1)), ["new"]);
  assert.equal(gaps.items[0]?.reason, "epoch");
  await assert.rejects(untold.next(), (error: PromError) => error.code === "gap");
  await told.return();
});

test("gaps that a server tells are told", async () => {
  const server = new ScriptedServer();
  const gap = { topic: "a", partition: 0, from: 0, to: 5, reason: "retention" };
  server.answer = ({ corr = 0 }) => ({
    op: "RESUMED",
    corr,
    sub: 1,
    recovered: false,
    gaps: [gap],
    after: [{ topic: "a", partition: 0, next: 0 }],
  });
  await using bus = new Bus({ openSocket: server.openSocket });
  await assert.rejects(
    bus.tail("a").next(),
    /gap: a, partition 0: 0 to 5 are missing \(retention\)/,
  );
  const gaps = new Collected<Gap>();
  await using tail = bus.tail("a", { onGap: gaps.add });
  await tail.ready;
  assert.deepEqual(gaps.items, [gap]);
  // The next connection goes on after the gap.
  const asked = server.next((frame) => frame.op === "RESUME");
  server.hangUp();
  const frame = (await asked) as { opts?: unknown };
  const after = [{ topic: "a", partition: 0, next: 5 }];
  assert.deepEqual(frame.opts, { from: "earliest", after, credit: 256, batch: true });
});

test("what newer events have replaced is no error", async () => {
  const server = new ScriptedServer();
  server.answer = ({ corr = 0 }) => ({ op: "RESUMED", corr, sub: 1, recovered: true });
  await using bus = new Bus({ openSocket: server.openSocket });
  const tail = bus.tail("a", { from: "earliest" });
  await tail.ready;
  server.say({ op: "GAP", sub: 1, topic: "a", partition: 0, from: 0, to: 3, reason: "compacted" });
  const event = { id: "i", ts: 1, topic: "a", partition: 0, offset: 3, payload: "kept" };
  const ctx = { attempt: 1, max_attempts: 1 };
  server.say({ op: "EVENTS", sub: 1, events: [{ event, ctx }] });
  assert.deepEqual(payloads(await take(tail, 1)), ["kept"]);
});

test("a payload that does not fit ends a tail, unless somebody hears of it", async () => {
  await using h = await harness();
  const Beat = topic("beat", { schema: z.object({ pid: z.number() }) });
  await h.bus.publish("beat", { pid: "x" });
  await h.bus.publish("beat", { pid: 1 });
  await assert.rejects(h.bus.tail(Beat, { from: "earliest" }).next(), UnreadablePayload);
  const invalid = new Collected<UnreadablePayload>();
  await using tail = h.bus.tail(Beat, { from: "earliest", onInvalid: invalid.add });
  assert.deepEqual(payloads(await take(tail, 1)), [{ pid: 1 }]);
  assert.deepEqual(invalid.items[0]?.event.payload, { pid: "x" });
});

test("a slow reader is sent no more than it asked for", async () => {
  await using h = await harness();
  const entries = Array.from({ length: 1_000 }, (_, n) => ({ topic: "a", payload: n }));
  await h.bus.publishAll(entries);
  await using tail = h.bus.tail("a", { from: "earliest", prefetch: 10 });
  assert.deepEqual(
    payloads(await take(tail, 1_000)),
    entries.map((entry) => entry.payload),
  );
});
