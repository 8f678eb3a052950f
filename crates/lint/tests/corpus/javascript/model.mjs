const Kinds = Object.freeze({ A: "kind.a", B: "kind.b" });

export class Writer {
  static TOPIC = "writer.wrote";
  #private = "writer.hidden";
  write(bus) {
    bus.publish(Writer.TOPIC, {}); // @publish writer.wrote
    bus.publish(this.#private, {}); // @publish writer.hidden
  }
}

export const App = ({ bus }) => <a onClick={() => bus.publish(Kinds.A)}>publish("NO")</a>; // @publish kind.a

export function each(bus) {
  var topic = Kinds.B;
  // bus.publish("commented.out");
  bus.publish(topic); // @publish kind.b
}
