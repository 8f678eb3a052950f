import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type Harness, harness } from "../src/harness/index.js";

const MANIFEST = `
[topic."process.state"]
partitions = 2
snapshot = true
snapshot_every = "20ms"

[views.processes]
topic = "process.state"
fields = { host = "text", pid = "integer" }
`;

/** A server with a topic that has a snapshot, and a view. */
async function withManifest(body: (h: Harness) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "promethean-"));
  try {
    const config = join(folder, "prom.toml");
    await writeFile(config, MANIFEST);
    await using h = await harness({ arguments: ["--config", config] });
    await body(h);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Waits until the snapshot has so many states. */
async function snapshotted(h: Harness, states: number): Promise<void> {
  for (;;) {
    const answer = await fetch(`${h.url.replace("ws", "http")}/snapshots/process.state`);
    const page = (await answer.json()) as { states: unknown[] };
    if (page.states.length >= states) {
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test("the state of each key, then every event after it, none missed and none twice", async () => {
  await withManifest(async (h) => {
    for (let n = 0; n < 50; n += 1) {
      await h.bus.publish("process.state", { n }, { key: `k${n % 10}` });
    }
    await h.bus.publish("process.state", null, { key: "k3" });
    await snapshotted(h, 9);
    // What comes while states are read, and a broken connection, change nothing.
    const seen = new Map<string, number[]>();
    let states = 0;
    let published = 50;
    for await (const followed of h.bus.follow("process.state")) {
      if (followed.kind === "live") {
        h.dropConnections();
      } else {
        const { key = "", payload } = followed.event;
        const n = (payload as { n: number } | null)?.n ?? -1;
        seen.set(key, [...(seen.get(key) ?? []), n]);
        states += followed.kind === "state" ? 1 : 0;
      }
      if (published < 100) {
        await h.bus.publish("process.state", { n: published }, { key: `k${published % 10}` });
        published += 1;
      }
      const last = [...seen.values()].filter((values) => (values.at(-1) ?? 0) >= 90);
      if (published === 100 && last.length === 10) {
        break;
      }
    }
    assert.ok(states >= 9, `${states}`);
    for (const [key, values] of seen) {
      const sorted = [...values].sort((a, b) => a - b);
      assert.deepEqual(values, sorted, `${key}: ${values}`);
      assert.equal(new Set(values).size, values.length, `${key}: ${values}`);
    }
  });
});

test("views are read, and looked back at", async () => {
  await withManifest(async (h) => {
    const first = await h.bus.publish("process.state", { host: "a", pid: 1 }, { key: "k" });
    const second = await h.bus.publish("process.state", { host: "a", pid: 2 }, { key: "k" });
    const position = (event: { topic: string; partition: number; offset: number }) =>
      `${event.topic}/${event.partition}/${event.offset}`;
    const now = await h.bus.views.get<{ pid: number }>("processes", "k", {
      minPosition: position(second),
    });
    assert.equal(now.pid, 2);
    const then = await h.bus.views.at<{ pid: number }>("processes", "k", position(first));
    assert.equal(then.document?.pid, 1);
    const changes = await h.bus.views.diff("processes", "k", position(first), position(second));
    assert.deepEqual(
      changes.map(({ path, was, value }) => ({ path, was, value })),
      [{ path: "/pid", was: 1, value: 2 }],
    );
    const [why] = await h.bus.views.why("processes", "k", "/pid");
    assert.equal(why?.event?.id, second.id);
    const history = await h.bus.views.history("processes", "k");
    assert.deepEqual(
      history.map((step) => step.effect),
      ["put", "put"],
    );
    const listed: string[] = [];
    for await (const document of h.bus.views.list("processes", { host: "a", "pid.ge": 2 })) {
      listed.push(document._key);
    }
    assert.deepEqual(listed, ["k"]);
    await assert.rejects(h.bus.views.get("nothing", "k"), { code: "bad_request" });

    const sum = "state == null ? payload.pid : state + payload.pid";
    const folded = await h.bus.views.reduce<number>("processes", "k", position(second), sum);
    assert.deepEqual([folded.document, folded.folded, folded.events?.length], [3, 2, 2]);
    const never = await h.bus.views.at("processes", "nobody", new Date(), { by: "event" });
    assert.equal(never.outcome, "never_existed");
    for (let n = 0; n < 2_000; n += 1) {
      await h.bus.publish("process.state", { host: "b", pid: n }, { key: `p${n % 1_500}` });
    }
    // A member that is called like the last line.
    await h.bus.publish("process.state", { host: "c", end: { error: "no" } }, { key: "meeting" });
    const keys = new Set<string>();
    for await (const document of h.bus.views.atAll("processes", "now")) {
      keys.add(document._key);
    }
    assert.equal(keys.size, 1_502);
    // Whoever has seen enough leaves.
    for await (const document of h.bus.views.atAll("processes", "now")) {
      assert.ok(document._pos.startsWith("process.state/"));
      break;
    }
    await assert.rejects(h.bus.views.atAll("nothing", "now").next(), { code: "bad_request" });
  });
});

test("what led to what is told", async () => {
  await withManifest(async (h) => {
    const cause = await h.bus.publish("beat", {});
    const effect = await h.bus.publish("alert.raised", {}, { causedBy: [cause.id] });
    const trace = await h.bus.trace(effect.id);
    assert.deepEqual(
      trace.events.map(({ id, depth }) => [id, depth]),
      [
        [cause.id, -1],
        [effect.id, 0],
      ],
    );
    assert.ok(trace.complete);
    const down = await h.bus.trace(cause.id, { direction: "down", depth: 1 });
    assert.deepEqual(down.events[0]?.effects, [effect.id]);
    assert.equal(down.events[1]?.event?.topic, "alert.raised");
  });
});
