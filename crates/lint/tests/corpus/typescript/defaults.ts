// A parameter that has a value of its own: what it is where the caller says nothing.
import { Topics } from "./names";

declare const bus: any;

function report(topic = "report.made") { // @publish report.made
  return bus.publish(topic, {});
}
const alarm = (level: number, topic: string = Topics.CpuHigh) => bus.publish(topic, { level }); // @publish cpu.high

report();
report("report.named"); // @publish report.named
alarm(1);

export function nobody(topic = "report.exported") { // @publish report.exported
  return bus.publish(topic, {}); // @publish ?
}

function always(topic = "report.never") {
  return bus.publish(topic, {});
}
always("report.always"); // @publish report.always
