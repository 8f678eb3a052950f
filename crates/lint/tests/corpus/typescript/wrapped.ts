// Wrappers: the callers name the topics, the call inside does not count.
import { Topics } from "./names";
import { relay } from "./relay";

declare const bus: any;

function myPublish(topic: string, payload: unknown, headers = {}) {
  return bus.publish(topic, payload, { headers });
}
const quietly = async (topic: string) => { await myPublish(topic, null); };

class Producer {
  private readonly topic = "producer.made";
  readonly retries = "producer.retried";
  constructor(private bus: any) {}
  emit(topic: string) { return this.bus.publish(topic, {}); }
  start() {
    this.emit("producer.started"); // @publish producer.started
    return this.bus.publish(this.topic, {}); // @publish producer.made
  }
}

myPublish("wrapped.literal", {}); // @publish wrapped.literal
myPublish(Topics.CpuHigh, {}); // @publish cpu.high
quietly("wrapped.twice"); // @publish wrapped.twice
relay(bus, "wrapped.elsewhere"); // @publish wrapped.elsewhere
const producer = new Producer(bus);
producer.emit("producer.outside"); // @publish producer.outside
announce("wrapped.configured", {}); // @publish wrapped.configured
startChangefeed(db, bus, { collection: "processes", topic: "processes.changed" }); // @publish processes.changed

function shadow(HEARTBEAT: string) {
  const Topics = { CpuHigh: "shadow.inner" };
  bus.publish(Topics.CpuHigh, {}); // @publish shadow.inner
}
