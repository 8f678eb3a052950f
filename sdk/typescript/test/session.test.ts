import assert from "node:assert/strict";
import { test } from "node:test";
import { Bus, type Delivery, type PromError } from "../src/node/index.js";
import { type Asked, ScriptedServer } from "./scripted-server.js";
import { Signal, take } from "./signals.js";

function events(count: number) {
  return Array.from({ length: count }, (_, offset) => ({
    event: { id: `i${offset}`, ts: 1, topic: "a", partition: 0, offset, payload: offset },
    ctx: { attempt: 1, max_attempts: 5, ack_deadline_ms: 30_000, token: `t${offset}` },
  }));
}

test("a quiet connection is asked whether it lives, and left if it does not answer", async (t) => {
  let now = 1_000;
  t.mock.method(performance, "now", () => now);
  t.mock.timers.enable({ apis: ["setInterval"] });
  const server = new ScriptedServer();
  await using bus = new Bus({ openSocket: server.openSocket });
  await bus.consume("a", { group: "g" }, () => {});
  const pass = (ms: number) => {
    now += ms;
    t.mock.timers.tick(5_000);
  };
  pass(20_000);
  assert.equal(server.heard.length, 1, "not quiet for long");
  pass(10_000);
  const probe = server.heard.at(-1) as Asked & { credit?: number };
  assert.deepEqual([probe.op, probe.credit], ["CREDIT", 0]);
  // It is answered: all is well.
  await Promise.resolve();
  pass(10_000);
  assert.equal(bus.state.state, "connected");
  server.answer = () => undefined;
  pass(30_000);
  assert.equal(bus.state.state, "connected", "it has time to answer");
  const lost = new Signal<string>();
  bus.onState((change) => change.error && lost.fire(change.error.code));
  pass(31_000);
  assert.equal(await lost.happened, "disconnected");
});

/** Takes three events, acks them all at once, and tells how each ack went. */
async function codesOfAcks(server: ScriptedServer): Promise<string[]> {
  await using bus = new Bus({ openSocket: server.openSocket });
  const stream = bus.stream("a", { group: "g" });
  await stream.ready;
  server.say({ op: "EVENTS", sub: 1, group: "g", events: events(3) });
  const deliveries = (await take(stream, 3)) as Delivery[];
  const answers = await Promise.allSettled(deliveries.map((delivery) => delivery.ack()));
  return answers.map((answer) =>
    answer.status === "fulfilled" ? "ok" : (answer.reason as PromError).code,
  );
}

/** Pitfall 60: an answer went to whoever had asked first. */
test("answers find their questions, in whatever order they come", async () => {
  const server = new ScriptedServer();
  server.answer = () => undefined;
  await using bus = new Bus({ openSocket: server.openSocket });
  const asked = server.next((frame) => server.heard.length === 3 && frame.op === "PUBLISH");
  const publishes = ["a", "b", "c"].map((topic) => bus.publish(topic, topic));
  await asked;
  for (const [offset, { corr = 0 }] of [...server.heard.entries()].reverse()) {
    server.say({ op: "OK", corr, places: [{ id: "i", partition: 0, offset }] });
  }
  const records = await Promise.all(publishes);
  assert.deepEqual(
    records.map(({ topic, offset }) => [topic, offset]),
    [
      ["a", 0],
      ["b", 1],
      ["c", 2],
    ],
  );
});

/** Pitfall 63: a connection could have one subscription. */
test("one connection has many subscriptions, also of one topic", async () => {
  const server = new ScriptedServer();
  let sub = 0;
  server.answer = ({ op, corr = 0 }) => {
    sub += op === "SUBSCRIBE" ? 1 : 0;
    return { op: "OK", corr, sub };
  };
  await using bus = new Bus({ openSocket: server.openSocket });
  const seen: string[] = [];
  const both = new Signal();
  for (const group of ["g", "h"]) {
    await bus.consume("a", { group }, (event, ctx) => {
      seen.push(`${ctx.group}: ${event.payload}`);
      if (seen.length === 2) {
        both.fire();
      }
    });
  }
  server.say({ op: "EVENTS", sub: 2, group: "h", events: events(1) });
  server.say({ op: "EVENTS", sub: 1, group: "g", events: events(1) });
  await both.happened;
  assert.deepEqual(seen, ["h: 0", "g: 0"]);
});

test("acks go out together, and each that was refused is named", async () => {
  const server = new ScriptedServer();
  server.answer = (frame) => {
    const corr = frame.corr ?? 0;
    if (frame.op === "ACKS") {
      return { op: "OK", corr, accepted: 2, refused: [{ token: "t1", code: "stale_token" }] };
    }
    return { op: "OK", corr, sub: 1 };
  };
  const codes = await codesOfAcks(server);
  assert.deepEqual(codes, ["ok", "stale_token", "ok"]);
  assert.deepEqual(
    server.heard.map((frame) => frame.op),
    ["SUBSCRIBE", "ACKS"],
  );
});

test("where a server does not name what it refused, each ack is asked about", async () => {
  const server = new ScriptedServer();
  server.answer = (frame) => {
    const corr = frame.corr ?? 0;
    if (frame.op === "ACKS") {
      return { op: "OK", corr, accepted: 2 };
    }
    if (frame.op === "ACK") {
      const code = frame.token === "t1" ? "stale_token" : "conflict";
      return { op: "ERR", corr, code, msg: "" };
    }
    return { op: "OK", corr, sub: 1 };
  };
  const codes = await codesOfAcks(server);
  // Two had been accepted, which is what `conflict` says when asked again.
  assert.deepEqual(codes, ["ok", "stale_token", "ok"]);
  assert.deepEqual(
    server.heard.map((frame) => frame.op),
    ["SUBSCRIBE", "ACKS", "ACK", "ACK", "ACK"],
  );
});

test("credit is given back in few frames, and never more than was taken", async () => {
  const server = new ScriptedServer();
  await using bus = new Bus({ openSocket: server.openSocket });
  const stream = bus.stream("a", { group: "g", prefetch: 4 });
  await stream.ready;
  server.say({ op: "EVENTS", sub: 1, group: "g", events: events(4) });
  for (const delivery of await take(stream, 4)) {
    await delivery.skip();
  }
  const credits = server.heard.filter((frame) => frame.op === "CREDIT");
  assert.deepEqual(
    credits.map((frame) => (frame as { credit?: number }).credit),
    [2, 2],
  );
});

test("what is not prom.v1 is not connected to", async () => {
  const refused = new Signal<string>();
  await using bus = new Bus({
    openSocket: (_url, events) => {
      queueMicrotask(() => events.received(JSON.stringify({ op: "EVENT" })));
      return { send: () => {}, close: () => {} };
    },
    onState: (change) => change.error && refused.fire(change.error.code),
  });
  assert.equal(await refused.happened, "unreachable");
  assert.equal(bus.state.state, "waiting");
});
