"""Parts of layouts and findings, as the commands print them that declare them on a broker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delaystore.cli._output import say
from delaystore.transports.rabbitmq.topology import Binding, Exchange, Queue

if TYPE_CHECKING:
    from delaystore.cascades import Finding


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


def say_unchecked(unchecked: Sequence[str]) -> None:
    """A line for each of what could not be checked."""
    for sentence in unchecked:
        say(f"not checked: {sentence}")


def _plain(value: Any) -> Any:
    """`value` for JSON. The value of an argument may be anything that AMQP can carry."""
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)
