export async function relay(bus: any, name: string) {
  await bus.publish(name, {});
}

export function nobodyCalls(bus: any, name: string) {
  return bus.publish(name, {}); // @publish ?
}
