def report(bus, topic="task.made", *, other: str = "task.typed"):
    bus.publish(topic, {})
    bus.publish(other, {})


report(bus)
report(bus, topic="task.named")
