// None of this names a topic: bus.publish("in a comment", {})
/* bus.publish("IN A BLOCK COMMENT", {}); bus.subscribe("Also Here", "g"); */
const text = 'bus.publish("IN A STRING", {})';
const template = `bus.publish("IN A TEMPLATE", { headers: { Bad: 1 } })`;
const pattern = /publish\("IN A REGEX"\)/;
interface Bus { publish(topic: "IN A TYPE", payload: unknown): void }
type Call = "publish('IN A TYPE ALIAS')";
const republish = (x: string) => x;
republish("NOT OURS");
unpublish("NOT OURS EITHER");
observable.subscribe((value: number) => value + 1);
observable.subscribe({ next(value: number) {}, error() {} });
store.subscribe(function () {});
buffer.stream(5);
response.stream();
fetch("url", { headers: { Authorization: "Bearer" } });
export const markup = "topic('NOT A CALL')";
lane.topic("NOT OURS ON A LANE");
lanes().topic("NOT OURS ON A CALL");
