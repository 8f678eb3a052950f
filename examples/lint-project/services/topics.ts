export const Topics = {
  Heartbeat: "heartbeat.received",
  CpuHigh: "cpu.high",
} as const;
