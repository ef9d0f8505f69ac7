"""Parts of layouts and findings, as the commands print them that declare them on a broker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delaystore.cli._output import print_document, print_table, say, tell
from delaystore.transports.rabbitmq.topology import Binding, Exchange, Queue

if TYPE_CHECKING:
    from delaystore.cascades import Finding, Verification


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
