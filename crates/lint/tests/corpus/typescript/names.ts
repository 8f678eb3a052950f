// Names of topics, in every way in which TypeScript people keep them.
export const HEARTBEAT = "heartbeat.received";
export const PREFIX = "process";
export const STARTED = `${PREFIX}.started`;
export const STOPPED = PREFIX + ".stopped";

export enum Topics {
  Heartbeat = "heartbeat.received",
  CpuHigh = "cpu.high",
  Ended = `process.ended`,
}

export const TOPICS = {
  order: { placed: "order.placed", paid: "order.paid" },
  "cpu": "cpu.high",
} as const;

export const FROZEN = Object.freeze({ refund: "order.refunded" });

export class Names {
  static readonly Placed = "order.placed";
  static Paid = "order.paid";
}

export namespace Audit {
  export const Login = "audit.login";
}

export default "names.default";
export const dead = (topic: string) => `dlq.${topic}`;
export function snapshotOf(topic: string): string {
  return `${topic}.snapshot`;
}
