"""Names: bus.publish("IN A DOC STRING", {})."""
from dataclasses import dataclass
from enum import Enum, StrEnum

HEARTBEAT = "heartbeat.received"
PREFIX: str = "process"
STARTED = f"{PREFIX}.started"
TOPICS = {"cpu": "cpu.high", "order": {"placed": "order.placed"}}


class Topics(str, Enum):
    CPU_HIGH = "cpu.high"
    ENDED = PREFIX + ".ended"


@dataclass(frozen=True)
class Names:
    placed: str = "order.placed"


class Heartbeat:
    topic = "heartbeat.received"

    def __init__(self, pid: int):
        self.pid = pid


def dead(topic):
    """The dead letters of a topic."""
    return f"dlq.{topic}"
