import { type Bus, type Consumer, topic } from "promethean";
import { z } from "zod";

/** A part of a key, so that `a:b` and `c` cannot be taken for `a` and `b:c`. */
const escaped = (part: string | number) => String(part).replace(/[%:]/g, encodeURIComponent);

const processId = (of: { host: string; name: string; pid: number }) =>
  [of.host, of.name, of.pid].map(escaped).join(":");

/** Keyed, so that beats of one process stay in order, also when one of them is tried again. */
export const Heartbeat = topic("heartbeat.received", {
  key: processId,
  schema: z.object({
    pid: z.number(),
    name: z.string(),
    host: z.string(),
    cpu_pct: z.number(),
    mem_mb: z.number(),
  }),
});

/** Turns heartbeats into the state of their processes. */
export function startProcessProjector(bus: Bus): Promise<Consumer> {
  // A beat is worth many attempts: what is behind it waits for it.
  const options = { group: "process-projector", from: "earliest", maxAttempts: 100 } as const;
  return bus.consume(Heartbeat, options, async ({ payload, ts }, ctx) => {
    const key = processId(payload);
    await ctx.publish(
      "process.state",
      { ...payload, processId: key, status: "alive", last_seen_ts: ts },
      { key },
    );
  });
}
