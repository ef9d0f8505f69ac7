"""What the commands of `delaystore delays` print of a cascade's parts and of findings."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from delaystore.cli.output import print_document, print_table, say, tell

if TYPE_CHECKING:
    from delaystore.transports.rabbitmq.administration import Finding, Verification
    from delaystore.transports.rabbitmq.topology import Binding, Exchange, Queue


def part_document(part: "Exchange | Queue | Binding") -> dict[str, Any]:
    """An exchange, a queue or a binding in JSON."""
    from delaystore.transports.rabbitmq.topology import Binding, Exchange

    if isinstance(part, Binding):
        return {
            "part": "binding",
            "source": part.source,
            "destination": part.destination,
            "destination_kind": part.kind.value,
            "routing_key": part.routing_key,
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


def print_verification(cascade: str, found: "Verification", as_json: bool) -> None:
    """The findings, or that there are none, and what could not be checked."""
    if as_json:
        print_document(
            {
                "good": found.good,
                "cascade": cascade,
                "broker": found.broker,
                "version": found.version,
                "findings": [finding_document(finding) for finding in found.findings],
                "unchecked": list(found.unchecked),
            }
        )
        return
    if found.good:
        tell(f"good: {cascade} on {found.broker} (RabbitMQ {found.version})")
    else:
        print_findings(found.findings)
    say_unchecked(found.unchecked)


def print_findings(findings: Iterable["Finding"]) -> None:
    """A table."""
    rows = [(finding.kind.value, finding.subject, finding.text) for finding in findings]
    print_table(("finding", "of", "what"), rows, unbroken=("finding",))


def say_unchecked(unchecked: Sequence[str]) -> None:
    """A line for each."""
    for sentence in unchecked:
        say(f"not checked: {sentence}")


def _plain(value: Any) -> Any:
    """What JSON can say; an argument may be anything that AMQP can."""
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)
