import { connect, topic, publish as send } from "@promethean/client";
import fallback, { HEARTBEAT, STARTED, STOPPED, Topics, TOPICS, FROZEN, Names, Audit, dead, snapshotOf } from "./names";
import * as all from "./names.js";
import { PLACED as ORDER_PLACED } from "./shop/topics";
import { SHIPPED } from "@acme/shop/topics";

const bus = await connect();
interface Beat { pid: number }

export const Heartbeat = topic("heartbeat.received", { version: 1, schema: {} }); // @define heartbeat.received

await bus.publish("heartbeat.received", { pid: 1 }); // @publish heartbeat.received
await bus.publish<Beat>('heartbeat.received', { pid: 1 }); // @publish heartbeat.received
await bus.publish(`heartbeat.received`, { pid: 1 }); // @publish heartbeat.received
await bus.publish("heartbeat\u002ereceived", {}); // @publish heartbeat.received
await bus.publish(HEARTBEAT, {}); // @publish heartbeat.received
await bus.publish(STARTED, {}); // @publish process.started
await bus.publish(STOPPED, {}); // @publish process.stopped
await bus.publish(`${all.PREFIX}.failed`, {}); // @publish process.failed
await bus.publish(all.PREFIX + "." + "resumed", {}); // @publish process.resumed
await bus.publish(Topics.CpuHigh, {}); // @publish cpu.high
await bus.publish(Topics["Heartbeat"], {}); // @publish heartbeat.received
await bus.publish(all.Topics.Ended, {}); // @publish process.ended
await bus.publish(TOPICS.order.placed, {}); // @publish order.placed
await bus.publish(TOPICS["cpu"], {}); // @publish cpu.high
await bus.publish(FROZEN.refund, {}); // @publish order.refunded
await bus.publish(Names.Placed, {}); // @publish order.placed
await bus.publish(Audit.Login, {}); // @publish audit.login
await bus.publish(fallback, {}); // @publish names.default
await bus.publish(ORDER_PLACED, {}); // @publish order.placed
await bus.publish(SHIPPED as string, {}); // @publish order.shipped
await bus.publish(Heartbeat, { pid: 1 }); // @publish heartbeat.received
await bus.publish(Heartbeat.name!, { pid: 1 }); // @publish heartbeat.received
await bus.publish(dead(HEARTBEAT), {}); // @publish dlq.heartbeat.received
await bus.publish(snapshotOf(Topics.CpuHigh), {}); // @publish cpu.high.snapshot
await bus.publish(["order", "lost"].join("."), {}); // @publish order.lost
await bus?.publish?.("order.maybe", {}); // @publish order.maybe
await bus["publish"]("order.subscript", {}); // @publish order.subscript
await (await connect()).publish("order.awaited", {}); // @publish order.awaited
await bus.publish(
  // the name of the topic
  "order.multiline", // @publish order.multiline
  {},
);
await send(bus, "order.aliased", {}); // @publish order.aliased
const emit = bus.publish.bind(bus);
await emit("order.bound", {}); // @publish order.bound
await bus.publish({ topic: "order.options", payload: {} }); // @publish order.options
await bus.publish(Math.random() > 0.5 ? "coin.heads" : "coin.tails", {}); // @publish coin.heads @publish coin.tails

let chosen: string;
if (HEARTBEAT) { chosen = "order.first"; } else { chosen = "order.second"; }
await bus.publish(chosen, {}); // @publish order.first @publish order.second

const sub = bus.consume(Heartbeat, { group: "ops" }, async (event, ctx) => { // @subscribe heartbeat.received
  await ctx.publish(Topics.CpuHigh, {}); // @publish cpu.high
});
for await (const event of bus.stream(Topics.Heartbeat, { group: "ops" })) { // @subscribe heartbeat.received
  event.ack();
}
await bus.subscribe("process.*", "ops", async () => {}); // @subscribe process.*
await bus.subscribe(["order.placed", TOPICS.order.paid], "ops", () => {}); // @subscribe order.placed @subscribe order.paid
await bus.tail(all.TOPICS.order.paid); // @subscribe order.paid
