"""`delaystore ingest status`."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.amounts import rate_text
from delaystore.cli._broker_options import BrokerUrl, ManagementUrl
from delaystore.cli._ingest.options import Exchange, Out, Queue, open_broker
from delaystore.cli._options import Json, environment_option
from delaystore.cli._output import is_terminal, print_document, printable, table_lines, write
from delaystore.errors import ConfigurationError, TransportError
from delaystore.times import duration_text, parse_duration

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient
    from delaystore.ingress.topology import IngressNames, IngressStatus, QueueStatus

_COLUMNS = ("queue", "of", "messages", "ready", "unacked", "consumers", "in", "out", "oldest")


def status(
    exchange: Exchange,
    out: Out = None,
    queue: Queue = None,
    watch: Annotated[bool, environment_option("--watch", "Show it again and again.", group="ingest_status")] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often, with --watch.")] = "2s",
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Say what is in the queues of an ingress, who takes from them, and how fast.

    A "?" is what is not known; without the management API that is more. In and out are messages a second. The oldest
    is told where messages have a timestamp and the broker shows it. --watch redraws it until Ctrl-C; with --json it
    prints a document a line. Exit code 1: something is missing, nobody takes from the ingress queue, or something is
    expired or rejected.
    """
    from delaystore.ingress.topology import IngressNames, read_status

    names = IngressNames.of(exchange, queue=queue, out=out)
    seconds = parse_duration(every, "--every").total_seconds()
    if not seconds:
        raise ConfigurationError("--every is 0; write how often, as in 2s")
    with open_broker(broker, management) as client:
        found = read_status(client, names)
        if watch:
            _watch(client, names, seconds, as_json=as_json)
            return
    if as_json:
        print_document(_document(found))
    else:
        write("".join(f"{line}\n" for line in _lines(found)))
    if not found.good:
        raise typer.Exit(1)


def _watch(client: "BrokerClient", names: "IngressNames", seconds: float, *, as_json: bool) -> None:
    from delaystore.cli._watch import watch_documents, watch_screen
    from delaystore.ingress.topology import read_status

    if not as_json and not is_terminal():
        raise ConfigurationError("--watch redraws a terminal; for a file or a pipe add --json, which prints lines")
    if as_json:

        def document() -> dict[str, Any]:
            try:
                return _document(read_status(client, names))
            except TransportError as error:
                return {"good": False, "exchange": names.exchange, "problems": [str(error)]}

        watch_documents(document, seconds)
    else:

        def lines() -> list[str]:
            try:
                return _lines(read_status(client, names))
            except TransportError as error:
                return [f"{printable(names.exchange)}: {printable(str(error))}"]

        watch_screen(lines, seconds)


def _document(found: "IngressStatus") -> dict[str, Any]:
    return {
        "good": found.good,
        "exchange": found.names.exchange,
        "out": found.names.out,
        "broker": found.broker,
        "queues": [_queue_document(queue) for queue in found.queues],
        "missing": list(found.missing),
        "queues_behind_out": found.bound,
        "waiting_in_plugin": found.waiting_in_plugin,
        "problems": list(found.problems),
        "unknown": list(found.unknown),
    }


def _queue_document(queue: "QueueStatus") -> dict[str, Any]:
    oldest = None if queue.oldest is None else queue.oldest.isoformat()
    return {**asdict(queue), "standing": queue.standing.value, "oldest": oldest}


def _lines(found: "IngressStatus") -> list[str]:
    right = ("messages", "ready", "unacked", "consumers", "in", "out", "oldest")
    lines = table_lines(_COLUMNS, [_row(queue) for queue in found.queues], right=right)
    if found.waiting_in_plugin is not None:
        lines.append(f"{found.waiting_in_plugin:,} wait in the delayed-message plugin, whose exchange this is")
    if found.bound is not None:
        lines.append(f"queues behind {found.names.out!r}: {found.bound:,}")
    lines += [f"problem: {sentence}" for sentence in found.problems]
    lines += [f"not known: {sentence}" for sentence in found.unknown]
    lines.append(f"{found.names.exchange!r} on {found.broker}: {'good' if found.good else 'not good'}")
    return [printable(line) for line in lines]


def _row(queue: "QueueStatus") -> tuple[str, ...]:
    counts = (queue.messages, queue.ready, queue.unacknowledged, queue.consumers)
    rates = (queue.publish_rate, queue.deliver_rate)
    age = "?" if queue.oldest is None else duration_text(datetime.now(UTC) - queue.oldest)
    return (
        queue.role,
        queue.name,
        *("?" if count is None else f"{count:,}" for count in counts),
        *("?" if rate is None else rate_text(rate) for rate in rates),
        age if queue.most else "",
    )
