"""The options that the commands of `delaystore ingest` share which are about a topology, and what they name."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._options import required

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient


class ExchangeType(StrEnum):
    """The types of exchanges that every RabbitMQ has."""

    DIRECT = "direct"
    TOPIC = "topic"
    FANOUT = "fanout"
    HEADERS = "headers"


Exchange = Annotated[str, typer.Argument(metavar="E", help="The exchange that programs publish to.")]
OutType = Annotated[
    ExchangeType | None,
    typer.Option("--type", help="The type of OUT: what the bindings of your queues need."),
]
EntranceType = Annotated[
    ExchangeType | None,
    typer.Option(
        "--exchange-type",
        help="The type of E: topic, fanout or headers, as publishers declare it. Default: that of OUT, or fanout where "
        "that is direct.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="OUT", help="The exchange for what is due; your queues are bound to it. [E.out]"),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="The ingress queue, where all of it goes. [E.ingress]"),
]


@contextmanager
def open_broker(broker: str | None, management: str | None) -> Iterator["BrokerClient"]:
    """The broker, for the block. Nothing is connected yet.

    ConfigurationError where none is given, or for a URL that cannot work.
    """
    from delaystore.cascades import BrokerClient

    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
    with BrokerClient(url, management or None, name="delaystore ingest") as client:
        yield client
