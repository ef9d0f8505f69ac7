"""The options that the commands of `delaystore ingest` share which are about a topology, and what they name."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli._options import environment_option, required

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
    environment_option(
        "--type", "The type of OUT: what the bindings of your queues need.", metavar="TYPE", group="ingest"
    ),
]
EntranceType = Annotated[
    ExchangeType | None,
    environment_option(
        "--exchange-type",
        "The type of E: topic, fanout or headers, as publishers declare it. Default: that of OUT, or fanout where that "
        "is direct.",
        metavar="TYPE",
        group="ingest",
    ),
]
Out = Annotated[
    str | None,
    environment_option(
        "--out", "The exchange for what is due; your queues are bound to it. [E.out]", metavar="OUT", group="ingest"
    ),
]
Queue = Annotated[
    str | None,
    environment_option(
        "--queue", "The ingress queue, where all of it goes. [E.ingress]", metavar="NAME", group="ingest"
    ),
]
FromPlugin = Annotated[
    bool,
    environment_option(
        "--from-plugin",
        "E is an exchange of the delayed-message plugin: OUT gets its type, bindings and arguments. Prints, step by "
        "step, how publishers change.",
        group="ingest_create",
    ),
]
NewName = Annotated[
    str | None,
    environment_option(
        "--as",
        "With --from-plugin: publishers change to E2 one by one, without a pause.",
        metavar="E2",
        group="ingest_create",
    ),
]
DefinitionsFile = Annotated[
    Path | None,
    environment_option(
        "--definitions",
        "As --from-plugin, with E as it is in this export of definitions; with --dry-run no broker is asked, unless "
        "--broker is given beside it.",
        metavar="FILE",
        group="ingest_create",
    ),
]
Replace = Annotated[
    bool,
    environment_option(
        "--replace",
        "With --definitions: delete the plugin's E, and declare the new one at once.",
        group="ingest_create",
    ),
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
