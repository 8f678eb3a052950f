bus.publish("IN DIST", {});
