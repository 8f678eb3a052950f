import { connect, topic } from "@promethean/client";
import { Topics } from "./topics";

// Version 2 is registered, but this still writes version 1: unused-version.
export const Heartbeat = topic(Topics.Heartbeat, { version: 1 });

const bus = await connect();

export async function beat(pid: number, team: string) {
  // Fine: a constant, a prefixed header, a standard header.
  await bus.publish(Topics.CpuHigh, { pid }, {
    headers: { "x-source": "hub", traceparent: "00-0-0-00" },
  });
  // header-name: no prefix, and no quotes that a search by pattern would need.
  await bus.publish(Topics.CpuHigh, { pid }, { headers: { correlationId: "1" } });
  // version-suffix: the bus writes the versioned topic, not its users.
  await bus.publish(`${Topics.CpuHigh}.v1`, { pid });
  // system-topic: a template that lost its quotes.
  await bus.publish("process.${team}", { pid });
  // dynamic-topic: only running it tells.
  await bus.publish(`process.${team}`, { pid });
  // Not a call: bus.publish("Commented Out", {})
}
