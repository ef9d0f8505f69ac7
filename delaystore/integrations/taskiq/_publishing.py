"""What a broker publishes for a task."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aio_pika.abc import AbstractMessage
from taskiq import BrokerMessage
from taskiq_aio_pika import AioPikaBroker


@dataclass(frozen=True, slots=True)
class Published:
    """The parts of a message. `destination`: the address of an exchange with a routing key."""

    message_id: str
    destination: str
    body: bytes
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]


async def published(broker: AioPikaBroker, message: BrokerMessage, delay: str) -> Published:
    """What `broker` would publish at once for `message`, whose label `delay` stays among the headers only.

    AioPikaBroker itself says so: it kicks the task into a channel that keeps it. Raises what `kick` raises.
    """
    labels = {name: value for name, value in message.labels.items() if name != delay}
    channel = _Channel()
    publisher = copy(broker)
    publisher.write_channel = channel  # type: ignore[assignment]  # it has all that `kick` asks for
    await AioPikaBroker.kick(publisher, message.model_copy(update={"labels": labels}))
    assert channel.message is not None
    kept = {name: value for name, value in message.labels.items() if name == delay}
    priority = channel.message.priority
    return Published(
        message_id=message.task_id,
        destination=f"/exchanges/{quote(channel.exchange, safe='')}/{quote(channel.routing_key, safe='')}",
        body=channel.message.body,
        headers={**channel.message.headers, **kept},
        properties={} if priority is None else {"priority": priority},
    )


class _Channel:
    """In the place of a channel and its exchange: keeps what is published."""

    def __init__(self) -> None:
        self.exchange = ""
        self.routing_key = ""
        self.message: AbstractMessage | None = None

    async def get_exchange(self, name: str, **_: Any) -> "_Channel":
        self.exchange = name
        return self

    async def publish(self, message: AbstractMessage, routing_key: str, **_: Any) -> None:
        self.message, self.routing_key = message, routing_key
