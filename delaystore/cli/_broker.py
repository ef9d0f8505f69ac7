"""What commands on cascades and ingresses share: options, reports, deletions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._commands import Offered
from delaystore.cli._options import DryRunOption, YesOption, environment_option, required, url_option
from delaystore.cli._output import can_ask, confirm, print_document, print_line, print_note, print_table
from delaystore.errors import ConfigurationError
from delaystore.text import counted
from delaystore.transports.rabbitmq.topology import Binding, CascadeTopology, Exchange, Queue, topology_named
from delaystore.transports.rabbitmq.topology.layout import Part

if TYPE_CHECKING:
    from delaystore.cascades import (
        BrokerClient,
        Creation,
        Deletion,
        DeletionCheck,
        Finding,
        LayoutWords,
        Verification,
    )

BrokerUrl = Annotated[
    str | None,
    url_option(
        "--broker", "RabbitMQ broker: amqp[s]://user:password@host:port/vhost. Default: --transport, if it is RabbitMQ."
    ),
]


def broker_of(broker: str | None, transport: str | None) -> str | None:
    """`broker`, or else the broker of `transport`; None: neither is given, or the transport is none of RabbitMQ."""
    is_broker = transport is not None and transport.lower().startswith("amqp")
    return broker or (transport if is_broker else None)


def require_broker(broker: str | None, transport: str | None) -> str:
    """As `broker_of`; ConfigurationError where neither names a broker."""
    return required(broker_of(broker, transport), "broker", "--broker URL", "DELAYSTORE_BROKER")


def _without_transport_parameters(url: str) -> str:
    from delaystore.transports.rabbitmq.parameters import take_parameter

    for parameter in ("delays", "queue_type"):
        url, _ = take_parameter(url, parameter)
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The broker that a command is about, as given on the command line."""

    broker: BrokerUrl = None
    transport: Annotated[
        str | None, url_option("--transport", "RabbitMQ broker, unless --broker is given: amqp://... or amqps://...")
    ] = None
    management: Annotated[
        str | None,
        url_option(
            "--management",
            "Management API: http[s]://[user:password@]host:15672; the login defaults to the login of --broker. "
            "Without it, some values are reported as unknown.",
        ),
    ] = None

    def require_broker(self) -> str:
        """The broker's URL, without parameters of transports; ConfigurationError where none is given."""
        url = require_broker(self.broker, self.transport)
        return url if self.broker else _without_transport_parameters(url)

    @contextmanager
    def open(self, name: str = "delaystore cascade") -> Iterator["BrokerClient"]:
        """The broker, for the block. Nothing is connected yet. `name`: the connection's name at the broker.

        ConfigurationError where none is given, or for a URL that cannot work.
        """
        from delaystore.cascades import BrokerClient

        with BrokerClient(self.require_broker(), self.management or None, name=name) as client:
            yield client


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
    return {**asdict(finding), "expected": _plain(finding.expected), "actual": _plain(finding.actual)}


def print_verification(found: "Verification", what: str, about: Mapping[str, str], *, as_json: bool) -> None:
    """Print a check's findings about `what`; raises typer.Exit if there is a fault. `about`: its name in JSON."""
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
    elif found.good:
        print_line(f"good: {what} on {found.broker} (RabbitMQ {found.version})")
    else:
        rows = [(finding.kind.value, finding.subject, finding.text) for finding in found.findings]
        print_table(("finding", "of", "what"), rows, unbroken=("finding",))
    if not as_json:
        say_unchecked(found.unchecked)
    if not found.good:
        raise typer.Exit(1)


def say_unchecked(unchecked: Sequence[str]) -> None:
    """A line for each check that was skipped."""
    for sentence in unchecked:
        print_note(f"not checked: {sentence}")


def _plain(value: Any) -> Any:
    """`value` for JSON. The value of an argument may be anything that AMQP can carry."""
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOptions:
    """How a command deletes a topology, as given on the command line."""

    force: Annotated[
        bool, typer.Option("--force", help="Delete even if messages are in the queues; they are lost.")
    ] = False
    yes: YesOption = False
    dry_run: DryRunOption = False

    def delete(
        self,
        client: "BrokerClient",
        what: Mapping[str, str],
        words: "LayoutWords",
        check: Callable[[], "DeletionCheck"],
        delete: Callable[[Callable[[Exchange | Queue], object]], "Deletion[Any]"],
        *,
        as_json: bool,
    ) -> None:
        """Delete a topology, once the user has confirmed it, and report.

        Args:
            client: The broker.
            what: The name of the topology, under the key that JSON documents have for it.
            words: The words of errors.
            check: Finds the parts to delete.
            delete: Deletes it, and calls its argument after each part.
            as_json: Report as one JSON document.

        Raises:
            typer.Exit: Of a dry run; with code 1 where the queues are used, so that nothing is deleted.
            TopologyInUseError: It is unknown whether messages are in the queues.

        """
        from delaystore.cascades import STATISTICS_AGE, TopologyInUseError

        found = check()
        refused = found.uses.certain is not None and not self.force
        if self.dry_run or (refused and (found.uses.messages or found.uses.consumers)):
            self._print_check(found, what, as_json=as_json)
            raise typer.Exit(1 if refused else 0)
        if refused:
            raise TopologyInUseError(found.uses, words)
        (name,) = what.values()
        is_asked = bool(found.parts) and not self.yes
        if is_asked and not can_ask():
            raise ConfigurationError("no terminal confirms the deletion; pass --yes")
        _say_cut_off(found)
        if is_asked:
            lost = f"; {found.uses.obstacle}" if found.uses.obstacle else ""
            confirm(
                f"Delete {name} on {client.label}, {counted(len(found.parts), 'part')}{lost}?", "nothing was deleted"
            )
        if found.queues and not self.force:
            print_note(f"checking again in {STATISTICS_AGE:g} s: the broker's counts may be that old")
        deleted: list[Exchange | Queue] = []
        try:
            deletion = delete(deleted.append)
        except KeyboardInterrupt:
            print_note(f"deleted until then: {counted(len(deleted), 'part')}; run it again to delete the rest")
            raise
        except TopologyInUseError as error:
            self._print_check(replace(found, uses=error.uses), what, as_json=as_json)
            print_note(str(error))
            raise typer.Exit(1) from None
        _print_deletion(deletion, what, f"{words.layout} {name!r}", as_json=as_json)

    def _print_check(self, found: "DeletionCheck", what: Mapping[str, str], *, as_json: bool) -> None:
        if as_json:
            print_document({**what, "dry_run": self.dry_run, "deleted": [], **_check_document(found)})
            return
        if self.dry_run:
            for part in (*found.parts, *_policies(found)):
                print_line(f"would delete: {part}")
            _say_cut_off(found)
            for sentence in found.kept:
                print_note(sentence)
        if found.uses.messages:
            rows = [(queue, f"{count:,}") for queue, count in found.uses.messages.items()]
            print_table(("queue", "messages"), rows, right=("messages",))
        if found.uses.obstacle is not None:
            print_note(f"not to be deleted without --force: {found.uses.obstacle}")


def _say_cut_off(found: "DeletionCheck") -> None:
    for binding in found.cut_off:
        print_note(f"caution: {binding.kind} {binding.destination!r} gets no messages from it any more")


def _policies(of: "DeletionCheck | Deletion[Any]") -> Sequence[str]:
    """The policies that were deleted with a cascade, or would be."""
    names = (getattr(of, "policy", None), getattr(of, "limit_policy", None))
    return [f"policy {name!r}" for name in names if name is not None]


def _print_deletion(deletion: "Deletion[Any]", what: Mapping[str, str], missing: str, *, as_json: bool) -> None:
    """`missing`: the words for the missing parts, if nothing was deleted."""
    if as_json:
        deleted = [part_document(part) for part in deletion.deleted]
        more = {"deleted_policies": _policies(deletion), "lost": deletion.lost, **_check_document(deletion.check)}
        print_document({**what, "dry_run": False, "deleted": deleted, **more})
        return
    for part in (*deletion.deleted, *_policies(deletion)):
        print_line(f"deleted: {part}")
    if not deletion.deleted:
        print_line(f"nothing to delete: there is no {missing}")
    for sentence in deletion.check.kept:
        print_note(sentence)
    if deletion.lost:
        print_note(f"{counted(deletion.lost, 'message')} lost")


def _check_document(found: "DeletionCheck") -> dict[str, Any]:
    return {
        "parts": [part_document(part) for part in found.parts],
        "policies": _policies(found),
        "kept": list(found.kept),
        "waiting": dict(found.uses.counts),
        "messages": sum(found.uses.messages.values()),
        "consumers": dict(found.uses.consumers),
        "obstacle": found.uses.obstacle,
        "cut_off": [part_document(binding) for binding in found.cut_off],
    }


Deleting = Annotated[DeletionOptions, Offered("force", "yes", "dry_run")]
Passive = Annotated[bool, typer.Option("--passive", help="Do not check the permission to declare.")]


@contextmanager
def saying_what_is_declared() -> Iterator[Callable[[Part], object]]:
    """Say which parts are declared where the block is interrupted. The block calls the result after each part."""
    from delaystore.transports.rabbitmq.declaring import declared_until_then

    declared: list[Part] = []
    try:
        yield declared.append
    except KeyboardInterrupt:
        print_note(declared_until_then(declared))
        raise


def creation_document(creation: "Creation", *, dry_run: bool) -> dict[str, Any]:
    """The parts that were declared, or would be, in JSON."""
    return {
        "broker": creation.broker,
        "version": creation.version,
        "dry_run": dry_run,
        "missing": [part_document(part) for part in creation.missing],
        "declared": creation.declared,
        "unchecked": list(creation.unchecked),
    }


CascadeName = Annotated[
    str,
    environment_option(
        "--cascade",
        "Cascade: nservicebus-v2, nservicebus-v1, celery[:QUEUE_TYPE[:PREFIX]], skipping[:PREFIX[:LEVELS[:ms]]] or "
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


OfferedCascade = Annotated[CascadeOptions, Offered("broker", "transport", "cascade", "management")]
