/**
 * The integration test of the notes: a heartbeat goes in, and the projector's state of the process
 * comes out (pitfall 157), also when everything goes wrong on the way. No fixed ports, no sleeping,
 * and stopping waits for its end (pitfall 158).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { harness } from "promethean/harness";
import { Heartbeat, startProcessProjector } from "./process-projector.js";

const beat = { pid: 1, name: "stt", host: "local", cpu_pct: 1, mem_mb: 2 };

test("harness end-to-end", async () => {
  await using h = await harness();
  await startProcessProjector(h.bus);

  const published = await h.bus.publish(Heartbeat, beat);
  await h.settled();

  const state = (await h.bus.latestByKey("process.state", ["local:stt:1"])).get("local:stt:1");
  assert.deepEqual(state?.caused_by, [published.id]);
  assert.deepEqual(state?.payload, {
    ...beat,
    processId: "local:stt:1",
    status: "alive",
    last_seen_ts: published.ts,
  });
});

test("the state is right whatever happens on the way", async () => {
  await using h = await harness({ store: "disk" });
  await startProcessProjector(h.bus);

  h.fail("process-projector", { times: 2 });
  await h.bus.publish(Heartbeat, { ...beat, cpu_pct: 10 });
  h.duplicate("process-projector");
  await h.bus.publish(Heartbeat, { ...beat, cpu_pct: 20 });
  h.dropConnections();
  await h.bus.publish(Heartbeat, { ...beat, cpu_pct: 30 });
  await h.restart({ kill: true });
  await h.bus.publish(Heartbeat, { ...beat, cpu_pct: 40 });
  await h.settled();

  const state = (await h.bus.latestByKey("process.state", ["local:stt:1"])).get("local:stt:1");
  const payload = state?.payload as typeof beat | undefined;
  assert.equal(payload?.cpu_pct, 40);
  assert.deepEqual(await h.bus.deadLetters.list(), []);
});
