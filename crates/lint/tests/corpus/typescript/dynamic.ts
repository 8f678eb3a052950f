declare const bus: any, team: string, items: any[];

bus.publish(`${team}.started`, {}); // @publish ?
bus.publish(process.env.TOPIC ?? "env.fallback", {}); // @publish ? @publish env.fallback
bus.subscribe(pick(team), "ops", () => {}); // @subscribe ?
for (const item of items) bus.publish(item.topic, item); // @publish ?
const later = "a." + team;
bus.publish(later, {}); // @publish ?
let grown = "a";
grown += team;
bus.publish(grown, {}); // @publish ? @publish a
