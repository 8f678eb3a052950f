import assert from "node:assert/strict";
import { test } from "node:test";
import { harness } from "../src/harness/index.js";
import { Bus, type EventRecord } from "../src/node/index.js";
import { ScriptedServer } from "./scripted-server.js";
import { Collected, Signal, take } from "./signals.js";

for (const kill of [true, false]) {
  const how = kill ? "that is killed" : "that is stopped";
  test(`a server ${how} and comes back: nothing is lost, nothing is stored twice`, async () => {
    await using h = await harness({ store: "disk" });
    const handled = new Map<unknown, number>();
    await h.bus.consume("a", { group: "g", from: "earliest", concurrency: 4 }, (event) => {
      handled.set(event.payload, (handled.get(event.payload) ?? 0) + 1);
    });
    const tail = h.bus.tail("a", { from: "earliest" });
    const followed = take(tail, 300);
    const publishes: Promise<EventRecord>[] = [];
    const publish = (from: number, to: number) => {
      for (let n = from; n < to; n += 1) {
        publishes.push(h.bus.publish("a", n));
      }
    };
    publish(0, 100);
    await publishes[50];
    publish(100, 200);
    const restarted = h.restart({ kill });
    publish(200, 300);
    await restarted;
    const records = await Promise.all(publishes);
    await h.settled();

    const events: EventRecord[] = [];
    for await (const event of h.bus.history("a")) {
      events.push(event);
    }
    const numbers = Array.from({ length: 300 }, (_, n) => n);
    assert.deepEqual(
      events.map((event) => event.payload),
      numbers,
    );
    assert.deepEqual(records, events);
    // At least once each; the tail, which remembers where it was, exactly once.
    assert.deepEqual(
      [...handled.keys()].sort((a, b) => Number(a) - Number(b)),
      numbers,
    );
    assert.deepEqual(await followed, events);
    await tail.return();
  });
}

test("a server that stops lets handlers finish: what they did is not done again", async () => {
  await using h = await harness({ store: "disk" });
  const began = new Signal();
  const go = new Signal();
  const attempts: number[] = [];
  await h.bus.consume("a", { group: "g" }, async (_event, ctx) => {
    attempts.push(ctx.attempt);
    began.fire();
    await go.happened;
  });
  await h.bus.publish("a", 1);
  await began.happened;
  const restarted = h.restart();
  // The server has said that it stops when it does not take events any more.
  const refused = new Signal();
  h.bus.onState((change) => change.state === "waiting" && refused.fire());
  go.fire();
  await refused.happened;
  await restarted;
  await h.bus.publish("b", 1);
  await h.settled();
  assert.deepEqual(attempts, [1]);
});

test("on DRAIN a client finishes, then connects again", async () => {
  const server = new ScriptedServer();
  await using bus = new Bus({ openSocket: server.openSocket });
  const states = new Collected<string>();
  bus.onState((change) => states.add(change.error?.code ?? change.state));
  await bus.connected();
  const go = new Signal();
  const began = new Signal();
  await bus.consume("a", { group: "g" }, async () => {
    began.fire();
    await go.happened;
  });
  const event = { id: "i", ts: 1, topic: "a", partition: 0, offset: 0, payload: 1 };
  const ctx = { attempt: 1, max_attempts: 5, ack_deadline_ms: 30_000, token: "t" };
  server.say({ op: "EVENTS", sub: 1, group: "g", events: [{ event, ctx }] });
  await began.happened;
  server.say({ op: "DRAIN", reason: "the server stops", deadline_ms: 60_000 });
  assert.deepEqual(states.items, ["connecting", "connected"].slice(-states.items.length));
  const subscribed = server.next((frame) => frame.op === "SUBSCRIBE");
  go.fire();
  await subscribed;
  const order = server.heard.map((frame) => frame.op);
  assert.deepEqual(order, ["SUBSCRIBE", "ACK", "SUBSCRIBE"]);
  assert.ok(states.items.includes("going_away"));
});
