import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { harness } from "../src/harness/index.js";
import { Retry } from "../src/node/index.js";
import { Collected, Signal } from "./signals.js";

test("deliveries fail on purpose, and are tried again", async () => {
  await using h = await harness();
  const seen: [unknown, number][] = [];
  await h.bus.consume("a", { group: "g" }, (event, ctx) => {
    seen.push([event.payload, ctx.attempt]);
  });
  h.fail("g", { times: 2 });
  await h.bus.publish("a", 1);
  await h.settled();
  assert.deepEqual(seen, [[1, 3]]);
});

test("a virtual clock goes on when it is told", async () => {
  await using h = await harness({ clock: "virtual" });
  const attempts = new Collected<number>();
  await h.bus.consume("a", { group: "g" }, (_event, ctx) => {
    attempts.add(ctx.attempt);
    if (ctx.attempt === 1) {
      throw new Retry({ after: "1h" });
    }
  });
  await h.bus.publish("a", 1);
  await attempts.count(1);
  // Its answer has to be there before time goes by.
  const out = async () => {
    const [group] = await h.bus.groups.lag();
    return group?.partitions.reduce((sum, partition) => sum + partition.out, 0);
  };
  while ((await out()) !== 0) {}
  await h.advance("59m");
  assert.deepEqual(await attempts.count(1), [1]);
  const [lag] = await h.bus.groups.lag();
  assert.ok((lag?.partitions[0]?.age_ms ?? 0) >= 59 * 60_000, "it has waited for so long");
  await h.advance("2m");
  assert.deepEqual(await attempts.count(2), [1, 2]);
  await h.settled();
});

test("a virtual clock goes on over delays of retries", async () => {
  await using h = await harness({ clock: "virtual" });
  const seen: [unknown, number][] = [];
  await h.bus.consume("a", { group: "g" }, (event, ctx) => {
    seen.push([event.payload, ctx.attempt]);
  });
  h.fail("g", { times: 2 });
  await h.bus.publish("a", 1);
  await h.settled();
  assert.deepEqual(seen, [[1, 3]]);
});

test("real time cannot be told", async () => {
  await using h = await harness();
  await assert.rejects(h.advance("1h"), /virtual/);
  await assert.rejects(harness({ clock: "virtual", store: "disk" }), /memory/);
});

test("what fails too often is a dead letter, with the reason", async () => {
  await using h = await harness();
  await h.bus.consume("a", { group: "g", maxAttempts: 3 }, () => assert.fail("never called"));
  h.fail("g", { times: 3, reason: "the disk is full" });
  await h.bus.publish("a", 1);
  await h.settled();
  const [letter] = await h.bus.deadLetters.list();
  assert.deepEqual([letter?.err, letter?.attempts], ["the disk is full", 3]);
});

test("lost acks bring events twice", async () => {
  await using h = await harness();
  const seen: unknown[] = [];
  await h.bus.consume("a", { group: "g", concurrency: 10 }, (event) => {
    seen.push(event.payload);
  });
  h.duplicate("g", { times: 2 });
  await h.bus.publishAll([1, 2, 3, 4].map((payload) => ({ topic: "a", payload })));
  await h.settled();
  assert.deepEqual(seen.sort(), [1, 1, 2, 2, 3, 4]);
});

test("one lost ack, one event twice", async () => {
  await using h = await harness();
  const attempts: number[] = [];
  await h.bus.consume("a", { group: "g" }, (_event, ctx) => {
    attempts.push(ctx.attempt);
  });
  h.duplicate("g");
  await h.bus.publish("a", 1);
  await h.settled();
  assert.deepEqual(attempts, [1, 2]);
});

test("connections are dropped, and come back", async () => {
  await using h = await harness();
  const states = new Collected<string>();
  h.bus.onState((change) => states.add(change.state));
  assert.equal(h.dropConnections(), 1);
  assert.deepEqual(await states.count(3), ["waiting", "connecting", "connected"]);
});

test("a group is dealt out anew, and misses nothing", async () => {
  await using h = await harness();
  const seen = new Collected<unknown>();
  const options = { group: "g", mode: "partitioned", from: "earliest" } as const;
  await h.bus.consume("a", options, (event) => seen.add(event.payload));
  await h.bus.publish("a", 1);
  await seen.count(1);
  await h.rebalance("g");
  await h.bus.publish("a", 2);
  await h.settled();
  assert.deepEqual([...new Set(seen.items)], [1, 2]);
  await assert.rejects(h.rebalance("nobody"), /nobody has joined/);
});

test("settled says what it waits for", async () => {
  await using h = await harness();
  const go = new Signal();
  await h.bus.consume("a", { group: "slow" }, () => go.happened);
  await h.bus.publish("a", 1);
  const waiting = h.settled({ timeout: "50ms" });
  await assert.rejects(waiting, /group slow is 1 events behind \(1 members, 1 out\)/);
  go.fire();
  await h.settled();
});

test("settled waits for what comes of what comes", async () => {
  await using h = await harness();
  const last: unknown[] = [];
  await h.bus.consume("d", { group: "a last one".replaceAll(" ", "-") }, (event) => {
    last.push(event.payload);
  });
  for (const [from, to] of [
    ["c", "d"],
    ["b", "c"],
    ["a", "b"],
  ] as const) {
    await h.bus.consume(from, { group: `z-${from}` }, async (event, ctx) => {
      await ctx.publish(to, event.payload);
    });
  }
  await h.bus.publish("a", "through");
  await h.settled();
  assert.deepEqual(last, ["through"]);
});

test("the server ends well", async () => {
  const h = await harness();
  assert.equal(await h.stop(), 0);
});

test("without a binary it says what to do", async () => {
  await assert.rejects(harness({ bin: "./no-such-prom" }), /cannot run .*no-such-prom/);
});

test("topics and groups of a manifest are there", async () => {
  const directory = await mkdtemp(join(tmpdir(), "promethean-"));
  const manifest = join(directory, "prom.toml");
  const words = ["version = 1", '[topic."orders.placed"]', "partitions = 4"];
  words.push("[group.billing]", 'topics = ["orders.*"]');
  await writeFile(manifest, words.join("\n"));
  await using h = await harness({ manifest });
  const [lag] = await h.bus.groups.lag();
  assert.deepEqual([lag?.group, lag?.partitions.length], ["billing", 4]);
  await rm(directory, { recursive: true });
});
