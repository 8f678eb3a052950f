const names = require("./names.cjs");
const { QUEUE, nested: inner } = require("./names");
const LOCAL = "queue." + "joined";

exports.run = async function (bus) {
  await bus.publish(names.QUEUE, {}); // @publish queue.filled
  await bus.publish(QUEUE, {}); // @publish queue.filled
  await bus.publish(inner.emptied, {}); // @publish queue.emptied
  await bus.publish(names.DRAINED, {}); // @publish queue.drained
  await bus.publish(LOCAL, {}, { headers: { "x-a": 1 } }); // @publish queue.joined
  await bus.publish("Bad_Name", {}); // @publish Bad_Name
  await bus.publish("queue.v2", {}); // @publish queue.v2
  return bus.subscribe("$groups", "g", () => {}); // @subscribe $groups
};
