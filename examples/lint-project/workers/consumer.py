from promethean import connect

HEARTBEAT = "heartbeat.received"


async def main():
    async with connect() as bus:
        async for delivery in bus.consume(HEARTBEAT, group="ops", schema_version=1):
            # topic-name: an underscore.
            await bus.publish("heartbeat_seen", {"id": delivery.id})
            # unregistered-topic: a typing error.
            await announce("heartbeat.recieved", delivery)
