def broken(:
    bus.publish("x
