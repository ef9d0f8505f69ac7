"""What commands on cascades and ingresses share: options, reports, confirmation of deletions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from delaystore.cli._commands import offered
from delaystore.cli._options import environment_option, required, url_option
from delaystore.cli._output import can_ask, confirm, print_document, print_table, say, tell
from delaystore.errors import ConfigurationError
from delaystore.text import counted
from delaystore.transports.rabbitmq.topology import Binding, CascadeTopology, Exchange, Queue, topology_named

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient, Finding, Verification

BrokerUrl = Annotated[
    str | None,
    url_option("--broker", "The RabbitMQ broker: amqp[s]://user:password@host:port/vhost."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The broker that a command is about, as given on the command line."""

    broker: BrokerUrl = None
    management: Annotated[
        str | None,
        url_option(
            "--management",
            "The management API: http[s]://[user:password@]host:15672; the login defaults to the broker's. "
            "Without it, what only the API knows is reported as unknown.",
        ),
    ] = None

    def require_broker(self) -> str:
        """The broker's URL; ConfigurationError where none is given."""
        return required(self.broker, "broker", "--broker URL", "DELAYSTORE_BROKER")

    @contextmanager
    def open(self, name: str = "delaystore delays") -> Iterator["BrokerClient"]:
        """The broker, for the block. Nothing is connected yet. `name`: what the broker calls the connection.

        ConfigurationError where none is given, or for a URL that cannot work.
        """
        from delaystore.cascades import BrokerClient

        with BrokerClient(self.require_broker(), self.management or None, name=name) as client:
            yield client


DryRun = Annotated[bool, environment_option("--dry-run", "Change nothing; say what would be done.")]


def part_document(part: Exchange | Queue | Binding) -> dict[str, Any]:
    """An exchange, a queue or a binding in JSON."""
    if isinstance(part, Binding):
        return {
            "part": "binding",
            "source": part.source,
            "destination": part.destination,
            "destination_kind": part.kind.value,
            "routing_key": part.routing_key,
            "arguments": {name: _plain(value) for name, value in part.arguments.items()},
        }
    return {"part": "exchange" if isinstance(part, Exchange) else "queue", "name": part.name}


def finding_document(finding: "Finding") -> dict[str, Any]:
    """A finding in JSON."""
    return {
        "kind": finding.kind.value,
        "subject": finding.subject,
        "text": finding.text,
        "argument": finding.argument,
        "expected": _plain(finding.expected),
        "actual": _plain(finding.actual),
    }


def print_verification(found: "Verification", what: str, about: Mapping[str, str], *, as_json: bool) -> None:
    """What a check has found of `what`. `about`: of what it is, in JSON."""
    if as_json:
        print_document(
            {
                "good": found.good,
                **about,
                "broker": found.broker,
                "version": found.version,
                "findings": [finding_document(finding) for finding in found.findings],
                "unchecked": list(found.unchecked),
            }
        )
        return
    if found.good:
        tell(f"good: {what} on {found.broker} (RabbitMQ {found.version})")
    else:
        rows = [(finding.kind.value, finding.subject, finding.text) for finding in found.findings]
        print_table(("finding", "of", "what"), rows, unbroken=("finding",))
    say_unchecked(found.unchecked)


def say_unchecked(unchecked: Sequence[str]) -> None:
    """A line for each of what could not be checked."""
    for sentence in unchecked:
        say(f"not checked: {sentence}")


def _plain(value: Any) -> Any:
    """`value` for JSON. The value of an argument may be anything that AMQP can carry."""
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)


class DeletionReport(Protocol):
    """What was deleted, and how many messages were lost with it."""

    @property
    def deleted(self) -> Sequence[Exchange | Queue]:
        """The deleted parts."""

    @property
    def lost(self) -> int:
        """Messages."""


def ask_whether_to_delete(question: str) -> None:
    """Ask on the terminal. Raises typer.Exit where the answer is no, and ConfigurationError without a terminal."""
    if not can_ask():
        raise ConfigurationError("no terminal confirms the deletion; pass --yes")
    confirm(question, "nothing was deleted")


@contextmanager
def telling_what_is_deleted(deleted: Sized) -> Iterator[None]:
    """Say how many of the parts are `deleted` where the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"deleted until then: {counted(len(deleted), 'part')}; run it again to delete the rest")
        raise


def tell_planned(parts: Iterable[object]) -> None:
    """A line for each of the parts that would be deleted."""
    for part in parts:
        tell(f"would delete: {part}")


def say_obstacle(obstacle: str | None) -> None:
    """Why nothing is deleted, if so."""
    if obstacle is not None:
        say(f"not to be deleted without --force: {obstacle}")


def tell_deleted(deletion: DeletionReport, *more: object, what: str, kept: Iterable[str] = ()) -> None:
    """A line for each part, and for `more`. `what`: what there is none of, if so. `kept`: sentences on what stays."""
    for part in (*deletion.deleted, *more):
        tell(f"deleted: {part}")
    if not deletion.deleted:
        tell(f"nothing to delete: there is no {what}")
    for sentence in kept:
        say(sentence)
    if deletion.lost:
        say(f"{counted(deletion.lost, 'message')} lost")


def deletion_document(deletion: DeletionReport) -> dict[str, Any]:
    """What was deleted, in JSON."""
    return {
        "dry_run": False,
        "deleted": [part_document(part) for part in deletion.deleted],
        "lost": deletion.lost,
    }


CascadeName = Annotated[
    str,
    environment_option(
        "--cascade",
        "nservicebus-v2, nservicebus-v1, celery[:QUEUE_TYPE[:PREFIX]], skipping[:PREFIX[:LEVELS[:ms]]] or "
        "custom:PREFIX[:LEVELS[:ms]].",
        metavar="NAME",
    ),
]
"""Give it the default `DEFAULT_CASCADE`."""
DEFAULT_CASCADE = "nservicebus-v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeOptions(BrokerOptions):
    """The cascade that a command is about, as given on the command line."""

    cascade: CascadeName = DEFAULT_CASCADE

    @contextmanager
    def open_cascade(self) -> Iterator[tuple["BrokerClient", CascadeTopology]]:
        """The broker, for the block, and the cascade that the options name. Nothing is connected yet.

        ConfigurationError where no broker is given, for a URL that cannot work, or for a name that is no cascade's.
        """
        topology = topology_named(self.cascade)
        with self.open() as client:
            yield client, topology


Cascade = Annotated[CascadeOptions, offered("broker", "cascade", "management")]
