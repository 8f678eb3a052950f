import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { z } from "zod";
import { harness } from "../src/harness/index.js";
import { Bus, type EventRecord, newEventId, PromError, topic } from "../src/node/index.js";
import { type Asked, ScriptedServer } from "./scripted-server.js";

const refused = (code: string) => (error: unknown) =>
  error instanceof PromError && error.code === code;

async function stored(bus: Bus, name: string): Promise<EventRecord[]> {
  const events: EventRecord[] = [];
  for await (const event of bus.history(name)) {
    events.push(event);
  }
  return events;
}

test("what publish gives back is what is stored", async () => {
  await using h = await harness();
  const record = await h.bus.publish(
    "heartbeat.received",
    { pid: 1, text: "é\u2028" },
    { key: "dev:stt:1", headers: { "x-a": "1" }, tags: ["#stt"], sid: newEventId() },
  );
  assert.deepEqual(await stored(h.bus, "heartbeat.received"), [record]);
  const latest = await h.bus.latestByKey("heartbeat.received", ["dev:stt:1", "none"]);
  assert.deepEqual([...latest], [["dev:stt:1", record]]);
});

test("the same id again adds nothing; with another payload it is refused", async () => {
  await using h = await harness();
  const id = newEventId();
  const first = await h.bus.publish("a", 1, { id, ts: 5 });
  const again = await h.bus.publish("a", 1, { id, ts: 5 });
  assert.deepEqual(again, first);
  await assert.rejects(h.bus.publish("a", 2, { id }), refused("id_conflict"));
  assert.equal((await stored(h.bus, "a")).length, 1);
});

test("many events go in whole or not at all", async () => {
  await using h = await harness();
  const records = await h.bus.publishAll([
    { topic: "a", payload: 1, key: "k" },
    { topic: "b", payload: null, key: "k" },
  ]);
  assert.deepEqual(
    records.map((record) => [record.topic, record.payload, record.offset]),
    [
      ["a", 1, 0],
      ["b", null, 0],
    ],
  );
  const bad = h.bus.publishAll([
    { topic: "a", payload: 2 },
    { topic: "NOT A TOPIC", payload: 2 },
  ]);
  await assert.rejects(bad, PromError);
  await assert.rejects(h.bus.publishAll([]), refused("bad_request"));
  assert.equal((await stored(h.bus, "a")).length, 1);
});

test("what cannot be sent is refused here, and the connection stays", async () => {
  await using h = await harness();
  await assert.rejects(h.bus.publish("a", "x".repeat(2 ** 21)), refused("too_large"));
  await assert.rejects(h.bus.publish("a", undefined), refused("invalid_event"));
  await assert.rejects(h.bus.publish("a", 1, { headers: { cookie: "1" } }), PromError);
  assert.equal(h.bus.state.state, "connected");
});

for (const [library, schema] of [
  ["zod", z.object({ pid: z.number(), seen: z.iso.datetime().transform((at) => new Date(at)) })],
  [
    "valibot",
    v.object({
      pid: v.number(),
      seen: v.pipe(
        v.string(),
        v.transform((at) => new Date(at)),
      ),
    }),
  ],
] as const) {
  test(`typed topics are validated on both sides: ${library}`, async () => {
    await using h = await harness();
    const Beat = topic("beat", {
      schema,
      version: 3,
      key: (beat: { pid: number }) => `pid:${beat.pid}`,
    });
    const seen = "2026-01-02T03:04:05.000Z";
    const record = await h.bus.publish(Beat, { pid: 7, seen });
    assert.equal(record.key, "pid:7");
    assert.equal(record.headers?.["x-schema-version"], "3");
    // Readers get what the schema makes of it; what is stored is what was said.
    assert.deepEqual(record.payload, { pid: 7, seen: new Date(seen) });
    assert.deepEqual((await stored(h.bus, "beat"))[0]?.payload, { pid: 7, seen });
    for await (const event of h.bus.tail(Beat, { from: "earliest" })) {
      assert.deepEqual(event.payload.seen, new Date(seen));
      break;
    }
    const wrong = { pid: "7", seen } as unknown as { pid: number; seen: string };
    await assert.rejects(h.bus.publish(Beat, wrong), (error: PromError) => {
      assert.match(error.message, /^schema_invalid: payload of beat: pid: /);
      return error.code === "schema_invalid";
    });
  });
}

test("what is published without a connection goes out with the next one, once and in order", async () => {
  await using h = await harness();
  h.offline();
  const publishes = Array.from({ length: 50 }, (_, n) => h.bus.publish("a", n));
  h.online();
  await Promise.all(publishes);
  const payloads = (await stored(h.bus, "a")).map((event) => event.payload);
  assert.deepEqual(
    payloads,
    Array.from({ length: 50 }, (_, n) => n),
  );
});

test("connections that break under way lose nothing and double nothing", async () => {
  await using h = await harness();
  const publishes: Promise<EventRecord>[] = [];
  for (let round = 0; round < 5; round += 1) {
    for (let n = 0; n < 40; n += 1) {
      publishes.push(h.bus.publish("a", round * 40 + n));
    }
    // Some are stored and not answered, some are on their way.
    await publishes[round * 40 + 3];
    h.dropConnections();
  }
  const records = await Promise.all(publishes);
  const events = await stored(h.bus, "a");
  assert.deepEqual(
    events.map((event) => event.payload),
    Array.from({ length: 200 }, (_, n) => n),
  );
  assert.deepEqual(events, records);
});

test("a refusal that may pass is tried again, with the same id", async () => {
  const server = new ScriptedServer();
  let asked = 0;
  server.answer = ({ corr = 0 }) => {
    asked += 1;
    return asked < 3
      ? { op: "ERR", corr, code: "rate_limited", msg: "slowly", retry_ms: 1 }
      : { op: "OK", corr, places: [{ id: "i", partition: 2, offset: 9 }] };
  };
  await using bus = new Bus({ openSocket: server.openSocket });
  const record = await bus.publish("a", 1);
  assert.deepEqual([record.partition, record.offset], [2, 9]);
  const sent = server.heard as (Asked & { events: { opts: { id: string } }[] })[];
  assert.deepEqual(
    sent.map((frame) => frame.events[0]?.opts.id),
    [record.id, record.id, record.id],
  );
});

test("what takes too long may be stored, and the error says so", async () => {
  const server = new ScriptedServer();
  server.answer = () => undefined;
  await using bus = new Bus({ openSocket: server.openSocket });
  const late = bus.publish("a", 1, { timeout: "20ms" });
  await assert.rejects(late, (error: PromError) => {
    assert.ok(error.id !== undefined && error.retryable);
    return error.code === "indeterminate";
  });
  const stop = new AbortController();
  const aborted = bus.publish("a", 1, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(aborted, /enough/);
});

test("publishes that pile up are bounded", async () => {
  const server = new ScriptedServer();
  server.answer = () => undefined;
  const bus = new Bus({ openSocket: server.openSocket });
  const publishes = Array.from({ length: 10_001 }, () => bus.publish("a", 1));
  const last = publishes.at(-1) as Promise<EventRecord>;
  await assert.rejects(last, refused("limit"));
  const all = Promise.allSettled(publishes);
  await bus.close();
  const ends = await all;
  assert.ok(
    ends.slice(0, -1).every((end) => end.status === "rejected" && refused("closed")(end.reason)),
  );
  await assert.rejects(bus.publish("a", 1), refused("closed"));
});
