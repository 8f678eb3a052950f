import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { harness } from "../src/harness/index.js";
import { type Bus, Park, PromError, Retry, Skip, topic } from "../src/node/index.js";
import { openNodeSocket } from "../src/node/websocket.js";
import type { OpenSocket } from "../src/socket.js";
import { Collected, Signal } from "./signals.js";

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

async function publishNumbers(bus: Bus, name: string, count: number, key?: (n: number) => string) {
  const entry = (n: number) => ({ topic: name, payload: n, ...(key ? { key: key(n) } : {}) });
  await bus.publishAll(numbers(count).map(entry));
}

/** Tells of each frame of a kind that a client sends. */
function watching(op: string, sent: () => void): OpenSocket {
  return (url, events) => {
    const socket = openNodeSocket(url, events);
    return {
      send: (text) => {
        socket.send(text);
        if (JSON.parse(text).op === op) {
          sent();
        }
      },
      close: (code, reason) => socket.close(code, reason),
    };
  };
}

test("one handler at a time gets events in order, and they are done when it returns", async () => {
  await using h = await harness();
  await publishNumbers(h.bus, "a", 300);
  const seen: unknown[] = [];
  let running = 0;
  await h.bus.consume("a", { group: "g", from: "earliest" }, async (event, ctx) => {
    running += 1;
    await Promise.resolve();
    assert.equal(running, 1);
    assert.deepEqual([ctx.group, ctx.attempt, ctx.maxAttempts], ["g", 1, 5]);
    seen.push(event.payload);
    running -= 1;
  });
  await h.settled();
  assert.deepEqual(seen, numbers(300));
  assert.deepEqual(await h.bus.groups.cursors("g"), [{ topic: "a", partition: 0, next: 300 }]);
});

test("handlers run side by side, but never two of a key", async () => {
  await using h = await harness();
  const all = new Signal();
  const running = new Map<string, number>();
  let most = 0;
  const seen = new Map<string, number[]>();
  const options = { group: "g", from: "earliest", concurrency: 4 } as const;
  await publishNumbers(h.bus, "a", 80, (n) => `k${n % 4}`);
  await h.bus.consume("a", options, async (event) => {
    const key = event.key ?? "";
    assert.equal(running.get(key) ?? 0, 0, key);
    running.set(key, 1);
    const now = [...running.values()].reduce((sum, one) => sum + one, 0);
    most = Math.max(most, now);
    if (now === 4) {
      all.fire();
    }
    // The first of each key wait until all four are here.
    await all.happened;
    seen.set(key, [...(seen.get(key) ?? []), event.payload as number]);
    running.set(key, 0);
  });
  await h.settled();
  assert.equal(most, 4);
  for (const [key, payloads] of seen) {
    assert.deepEqual(
      payloads,
      [...payloads].sort((a, b) => a - b),
      key,
    );
  }
});

test("outcomes: tried again, parked, skipped, given up", async () => {
  await using h = await harness();
  const attempts = new Map<string, number>();
  const errors = new Collected<unknown>();
  const options = {
    group: "g",
    from: "earliest",
    concurrency: 8,
    maxAttempts: 2,
    onError: errors.add,
  } as const;
  await h.bus.consume("a", options, async ({ payload }, ctx) => {
    attempts.set(String(payload), ctx.attempt);
    switch (payload) {
      case "retry once":
        if (ctx.attempt === 1) {
          throw ctx.retry({ after: "1ms", reason: "not yet" });
        }
        return undefined;
      case "retry for ever":
        return new Retry({ after: 0, reason: "never" });
      case "park":
        throw ctx.park("no such host");
      case "park by class":
        return new Park("no such pid");
      case "skip":
        return new Skip();
      case "throw":
        if (ctx.attempt === 1) {
          throw new TypeError("boom");
        }
    }
    return undefined;
  });
  const payloads = ["retry once", "retry for ever", "park", "park by class", "skip", "throw"];
  for (const payload of payloads) {
    await h.bus.publish("a", payload);
  }
  await h.settled();
  assert.deepEqual(
    payloads.map((payload) => attempts.get(payload)),
    [2, 2, 1, 1, 1, 2],
  );
  const letters = await h.bus.deadLetters.list({ group: "g" });
  const facts = letters.map(
    (letter) => `${letter.original?.payload}: ${letter.err} (${letter.attempts})`,
  );
  assert.deepEqual(facts.sort(), [
    "park by class: no such pid (1)",
    "park: no such host (1)",
    "retry for ever: never (2)",
  ]);
  // Only what nobody meant to happen is an error.
  assert.deepEqual(errors.items.map(String), ["TypeError: boom"]);
});

test("a dead letter says where the error came from, but not on whose machine", async () => {
  await using h = await harness();
  await h.bus.consume("a", { group: "g", maxAttempts: 1 }, function breakdown() {
    throw new TypeError("boom");
  });
  await h.bus.publish("a", "x");
  await h.settled();
  const [letter] = await h.bus.deadLetters.list({ group: "g" });
  const [error, call] = letter?.err.split("\n") ?? [];
  assert.equal(error, "TypeError: boom");
  assert.match(call ?? "", /^at breakdown \(test\/consuming\.test\.js:\d+:\d+\)$/);
  assert.ok(!letter?.err.includes(process.cwd()), letter?.err);
});

test("a dead letter comes back to its group when it is replayed", async () => {
  await using h = await harness();
  let broken = true;
  const handled: unknown[] = [];
  await h.bus.consume("a", { group: "g" }, (event) => {
    if (broken) {
      throw new Park("broken");
    }
    handled.push(event.payload);
  });
  await h.bus.publish("a", "x");
  await h.settled();
  const [letter] = await h.bus.deadLetters.list({ group: "g" });
  broken = false;
  await h.bus.deadLetters.replay(letter?.id ?? "");
  await h.settled();
  assert.deepEqual(handled, ["x"]);
});

test("what does not fit a typed topic is parked, with the reason", async () => {
  await using h = await harness();
  const Beat = topic("beat", { schema: z.object({ pid: z.number() }) });
  const pids: number[] = [];
  await h.bus.consume(Beat, { group: "g" }, (event) => {
    pids.push(event.payload.pid);
  });
  await h.bus.publish("beat", { pid: "seven" });
  await h.bus.publish("beat", { pid: 8 });
  await h.settled();
  assert.deepEqual(pids, [8]);
  const [letter] = await h.bus.deadLetters.list({ group: "g" });
  assert.match(letter?.err ?? "", /schema_invalid: payload of beat: pid: /);
  assert.equal(letter?.attempts, 1);
});

test("what a handler publishes names its cause, also deep inside, and keeps the trace", async () => {
  await using h = await harness();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const deep = async () => {
    await Promise.resolve();
    return h.bus.publish("b", "implicit");
  };
  await h.bus.consume("a", { group: "g" }, async (_event, ctx) => {
    await deep();
    await ctx.publish("b", "explicit");
    await ctx.publish("b", "none", { causedBy: [] });
  });
  const cause = await h.bus.publish("a", 1, { headers: { traceparent } });
  await h.settled();
  const events = [];
  for await (const event of h.bus.history("b")) {
    events.push([event.payload, event.caused_by, event.headers?.traceparent]);
  }
  assert.deepEqual(events, [
    ["implicit", [cause.id], traceparent],
    ["explicit", [cause.id], traceparent],
    ["none", undefined, traceparent],
  ]);
  assert.equal((await h.bus.publish("b", "outside")).caused_by, undefined);
});

test("filters are evaluated by the server", async () => {
  await using h = await harness();
  const seen: unknown[] = [];
  await h.bus.publishAll(numbers(10).map((n) => ({ topic: "a", payload: { n } })));
  const options = { group: "g", from: "earliest", filter: "payload.n >= 7" } as const;
  await h.bus.consume("a", options, (event) => {
    seen.push(event.payload);
  });
  await h.settled();
  assert.deepEqual(seen, [{ n: 7 }, { n: 8 }, { n: 9 }]);
  const wrong = h.bus.consume("a", { group: "x", filter: "payload.n >=" }, () => {});
  await assert.rejects(wrong, (error: PromError) => error.code === "invalid_filter");
});

test("a lease is renewed as long as the handler works", async () => {
  await using h = await harness();
  const renewals = new Collected<void>();
  const bus = await h.connect({ openSocket: watching("MODACK", () => renewals.add()) });
  const attempts: number[] = [];
  const lost: boolean[] = [];
  await bus.consume("a", { group: "g", ackTimeout: "600ms" }, async (_event, ctx) => {
    attempts.push(ctx.attempt);
    // Longer than two leases.
    await renewals.count(7);
    lost.push(ctx.signal.aborted);
  });
  await bus.publish("a", 1);
  await h.settled();
  assert.deepEqual([attempts, lost], [[1], [false]]);
});

test("a handler that hangs loses its event, and its signal says so", async () => {
  await using h = await harness();
  const attempts: number[] = [];
  const reasons: unknown[] = [];
  const errors = new Collected<unknown>();
  const options = {
    group: "g",
    ackTimeout: "500ms",
    maxProcessing: "600ms",
    concurrency: 2,
    onError: errors.add,
  } as const;
  await h.bus.consume("a", options, async (_event, ctx) => {
    attempts.push(ctx.attempt);
    if (ctx.attempt === 1) {
      await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      reasons.push(ctx.signal.reason);
    }
  });
  await h.bus.publish("a", 1);
  await h.settled();
  assert.deepEqual(attempts, [1, 2]);
  assert.equal((reasons[0] as PromError).code, "stale_token");
  // It answered too late, and hears of it.
  assert.equal((errors.items[0] as PromError).code, "stale_token");
});

test("a lost connection aborts what is being handled; it comes again", async () => {
  await using h = await harness();
  const began = new Signal();
  const attempts: number[] = [];
  await h.bus.consume("a", { group: "g" }, async (_event, ctx) => {
    attempts.push(ctx.attempt);
    if (ctx.attempt === 1) {
      began.fire();
      await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
    }
  });
  await h.bus.publish("a", 1);
  await began.happened;
  h.dropConnections();
  await h.settled();
  assert.deepEqual(attempts, [1, 2]);
});

test("nothing comes while paused, also after a reconnect; then all of it", async () => {
  await using h = await harness();
  const seen = new Collected<unknown>();
  const consumer = await h.bus.consume("a", { group: "g" }, (event) => seen.add(event.payload));
  await consumer.pause();
  const other = await h.connect();
  h.dropConnections();
  await other.publish("a", 1);
  await other.connected();
  await h.bus.connected();
  await h.bus.publish("a", 2);
  assert.deepEqual(seen.items, []);
  await consumer.resume();
  assert.deepEqual(await seen.count(2), [1, 2]);
  await consumer.caughtUp();
});

test("members share a group; stopping one lets it finish, and the rest goes to the other", async () => {
  await using h = await harness();
  const began = new Signal();
  const go = new Signal();
  const seen: string[] = [];
  const other = await h.connect();
  const first = await h.bus.consume("a", { group: "g", prefetch: 4 }, async (event) => {
    began.fire();
    await go.happened;
    seen.push(`first ${event.payload}`);
  });
  await publishNumbers(h.bus, "a", 4);
  await began.happened;
  const stopped = first.stop();
  await other.consume("a", { group: "g" }, (event) => {
    seen.push(`second ${event.payload}`);
  });
  go.fire();
  await stopped;
  await first.finished;
  await h.settled();
  assert.deepEqual(seen.sort(), ["first 0", "second 1", "second 2", "second 3"]);
});

test("a signal stops a consumer; `await using` does, too", async () => {
  await using h = await harness();
  const stop = new AbortController();
  const signal = stop.signal;
  const consumer = await h.bus.consume("a", { group: "g", signal }, () => {});
  stop.abort();
  await consumer.finished;
  {
    await using second = await h.bus.consume("a", { group: "g" }, () => {});
    assert.equal(second.running, 0);
  }
  const [lag] = await h.bus.groups.lag("g");
  assert.equal(lag?.members, 0);
});

test("a consumer that is not allowed hears of it at once", async () => {
  await using h = await harness();
  const refused = h.bus.consume("$internal", { group: "g" }, () => {});
  await assert.rejects(refused, PromError);
});
