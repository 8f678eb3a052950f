import hub.names as names
from . import names as near
from .names import HEARTBEAT as HB, STARTED, TOPICS, Heartbeat, Names, Topics, dead
from promethean import topic

Beat = topic("heartbeat.received", version=1)  # @define heartbeat.received


async def run(bus, team):
    await bus.publish("heartbeat.received", {"pid": 1})  # @publish heartbeat.received
    await bus.publish('single.quoted', {})  # @publish single.quoted
    await bus.publish("""triple.quoted""", {})  # @publish triple.quoted
    await bus.publish(r"raw.quoted", {})  # @publish raw.quoted
    await bus.publish("joined" ".by" ".parser", {})  # @publish joined.by.parser
    await bus.publish(HB, {})  # @publish heartbeat.received
    await bus.publish(STARTED, {})  # @publish process.started
    await bus.publish(names.PREFIX + ".stopped", {})  # @publish process.stopped
    await bus.publish(f"{near.PREFIX}.failed", {})  # @publish process.failed
    await bus.publish("{}.formatted".format(names.PREFIX), {})  # @publish process.formatted
    await bus.publish("{name}.named".format(name=names.PREFIX), {})  # @publish process.named
    await bus.publish("%s.percent" % names.PREFIX, {})  # @publish process.percent
    await bus.publish(".".join([names.PREFIX, "listed"]), {})  # @publish process.listed
    await bus.publish(Topics.CPU_HIGH, {})  # @publish cpu.high
    await bus.publish(Topics.ENDED.value, {})  # @publish process.ended
    await bus.publish(TOPICS["order"]["placed"], {})  # @publish order.placed
    await bus.publish(Names.placed, {})  # @publish order.placed
    await bus.publish(Names().placed, {})  # @publish order.placed
    await bus.publish(Heartbeat(pid=1))  # @publish heartbeat.received
    await bus.publish(Beat, {})  # @publish heartbeat.received
    await bus.publish(dead(HB), {})  # @publish dlq.heartbeat.received
    await bus.publish(topic="keyword.topic", payload={})  # @publish keyword.topic
    await bus.publish("if.a" if team else "if.b", {})  # @publish if.a @publish if.b
    await bus.publish("headers.keyword", {}, headers={"x-a": "1", "Tenant": {"a": {}}})  # @publish headers.keyword
    await send(bus, "wrapped.python")  # @publish wrapped.python
    await send(bus, name="wrapped.keyword")  # @publish wrapped.keyword
    await bus.publish(f"{team}.dynamic", {})  # @publish ?
    async for delivery in bus.consume(Heartbeat, group="ops"):  # @subscribe heartbeat.received
        print(delivery, 'bus.publish("IN A STRING", {})')  # bus.publish("IN A COMMENT", {})


async def send(bus, name):
    await bus.publish(name, {})


@bus.subscribe("decorated.topic", group="ops")  # @subscribe decorated.topic
def handle(event):
    pass


class Worker:
    TOPIC = "worker.class"

    def __init__(self, bus):
        self.bus = bus
        self.name = "worker.instance"

    def work(self):
        self.bus.publish(self.TOPIC, {})  # @publish worker.class
        self.bus.publish(self.name, {})  # @publish worker.instance
