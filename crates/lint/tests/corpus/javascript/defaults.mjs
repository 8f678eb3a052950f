function report(topic = "script.made") { // @publish script.made
  return bus.publish(topic, {});
}
report();
