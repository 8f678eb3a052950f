import { Topics } from "./names";

export function Panel({ bus }: { bus: any }) {
  return <button onClick={() => bus.publish(Topics.CpuHigh, {})}>publish("NOT A CALL")</button>; // @publish cpu.high
}
