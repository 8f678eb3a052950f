/**
 * Publishes: one event, the same one again, and several at once.
 *
 *     npm run example publish
 */
import { connect, topic } from "promethean";
import { z } from "zod";

const Heartbeat = topic("heartbeat.received", {
  schema: z.object({
    pid: z.number(),
    name: z.string(),
    host: z.string(),
    cpu_pct: z.number(),
    mem_mb: z.number(),
  }),
  key: (beat) => `${beat.host}:${beat.name}:${beat.pid}`,
});

await using bus = await connect();

const beat = { pid: 1, name: "stt", host: "dev", cpu_pct: 3, mem_mb: 90 };
const stored = await bus.publish(Heartbeat, beat, { tags: ["#stt"] });
console.log(`stored ${stored.id} of ${stored.key} at offset ${stored.offset}`);

const { id, ts, tags } = stored;
const again = await bus.publish(Heartbeat, beat, { id, ts, tags: [...(tags ?? [])] });
console.log(`the same again is still at offset ${again.offset}`);

const batch = await bus.publishAll([
  { topic: Heartbeat, payload: { ...beat, pid: 2 } },
  { topic: "process.started", payload: { pid: 2 }, causedBy: [stored.id] },
]);
console.log(`stored ${batch.length} more, all or none`);
