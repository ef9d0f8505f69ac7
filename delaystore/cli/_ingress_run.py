"""`delaystore ingress` run, replay and status."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.cli._broker import BrokerOptions, BrokerUrl, require_broker
from delaystore.cli._commands import Offered
from delaystore.cli._dispatch import metrics_server
from delaystore.cli._errors import ReasonOption
from delaystore.cli._ingress_options import IngressOptions, NameOptions
from delaystore.cli._options import (
    DispatchedEndpoint,
    DryRunOption,
    FailFast,
    JsonOption,
    Verbose,
    WatchOptions,
    environment_option,
)
from delaystore.cli._output import (
    log_to_standard_error,
    print_document,
    print_line,
    print_note,
    printable,
    table_lines,
    write,
)
from delaystore.cli._signals import look_for_garbage_seldom, stop_requests, stopped_by, when_reached
from delaystore.errors import TransportError
from delaystore.text import counted, duration_text, rate_text

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient
    from delaystore.delivery import DelayedDelivery
    from delaystore.ingress.health import IngressHealth
    from delaystore.ingress.ingress import Ingress
    from delaystore.ingress.rejected import Retry
    from delaystore.ingress.topology import IngressNames, IngressStatus, QueueStatus

_TICK: Final = 0.2
"""Seconds between two looks at whether to stop."""


def run(
    *,
    given: IngressOptions,
    metrics: Annotated[
        str | None,
        environment_option(
            "--metrics",
            "Serve metrics to Prometheus there, as at 127.0.0.1:9465.",
            metavar="HOST:PORT",
            group="ingress_run",
        ),
    ] = None,
    fail_fast: FailFast = False,
    verbose: Verbose = False,
    broker: BrokerUrl = None,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Consume delayed messages and store them.

    The command stores each message until it is due, and acknowledges it once it is stored. `delaystore dispatch`
    forwards due messages; `delaystore serve` does both. At SIGTERM or SIGINT the command ends.
    """
    from delaystore.delivery import DelayedDelivery
    from delaystore.ingress.ingress import Ingress
    from delaystore.transports.rabbitmq import RabbitMQTransport

    log_to_standard_error(verbose=verbose)
    ingress_of, longest = given.configuration(), given.delivery_settings()
    url = require_broker(broker, where.transport)
    name = where.require_endpoint()
    with closing(where.open_store()) as opened_store:
        delivery = DelayedDelivery(name, opened_store, settings=longest)
        rules = ingress_of.rules(given.exchange or "", RabbitMQTransport(url).check, frozenset({given.error_queue}))
        ingress = Ingress(delivery, url, rules, ingress_of.settings(given.exchange or ""), longest)
        with _served(metrics, name, ingress):
            _run(ingress, delivery, name, fail_fast=fail_fast)
        health = ingress.health()
    print_note(_outcome(health))
    if as_json:
        print_document(health.as_dict())


def _run(ingress: "Ingress", delivery: "DelayedDelivery", endpoint: str, *, fail_fast: bool) -> None:
    """Run until a signal asks to stop, which interrupts waiting for servers."""
    asked = threading.Event()
    interruptible = True

    def stop_asked() -> bool:
        asked.set()
        return interruptible

    with stopped_by(stop_asked):
        when_reached("the store", delivery.setup_infrastructure, fail_fast=fail_fast)
        when_reached("the broker", ingress.check, fail_fast=fail_fast)
        print_note(f"consuming {ingress.queue!r} for endpoint {endpoint!r}")
        interruptible = False
        look_for_garbage_seldom()
        ingress.start()
        while not asked.is_set():
            time.sleep(_TICK)  # a signal interrupts it; waiting for the event would lock against its own handler
        ingress.stop()


@contextmanager
def _served(address: str | None, endpoint: str, ingress: "Ingress") -> Iterator[None]:
    """Serve the metrics of `ingress` during the block, if an address is given."""
    if address is None:
        yield
        return
    with metrics_server(address) as server:
        watched = server.watch_ingress(endpoint, ingress)
        yield
        del watched  # the server reports an ingress as long as this is kept


def _outcome(health: "IngressHealth") -> str:
    others = {
        "were in the store already": health.duplicate,
        "forwarded at once": health.passthrough,
        "discarded": health.discarded,
        "delivered before, and dropped": health.repeated,
        "rejected": health.rejected,
        "applied": health.applied,
    }
    more = "".join(f", {count} {what}" for what, count in others.items() if count)
    return f"stopped: {health.stored} stored{more}"


def replay(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Rejected queue, as orders.ingress.rejected.")],
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of one message.")] = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    *,
    on: Annotated[BrokerOptions, Offered("broker", "transport")],
    as_json: JsonOption = False,
) -> None:
    """Publish rejected messages again.

    Correct the cause first. The command publishes all messages, one message by its id, or all messages with a reason.
    Each message goes to the exchange of its publisher, with the same routing key and content. A delay in x-delay starts
    again. A message leaves QUEUE once the broker has confirmed it. A message that is rejected again returns to QUEUE
    with its new reason. `delaystore errors list --messages --error-queue QUEUE` lists the messages.
    """
    from delaystore.cli._progress import ProgressBar
    from delaystore.ingress.rejected import RejectedFilter, retry_rejected
    from delaystore.transports.rabbitmq import RabbitMQTransport

    url = on.require_broker()
    tried = 0
    with stop_requests() as request, ProgressBar(transient=True) as bar:

        def progress(done: int, total: int) -> None:
            nonlocal tried
            tried = done
            bar.show("publishing", done, total)

        try:
            result = retry_rejected(
                RabbitMQTransport(url).broker,
                queue,
                RejectedFilter(message_id, reason),
                dry_run=dry_run,
                on_progress=progress,
                stopping=lambda: request.made,
            )
        except TransportError:
            bar.end()
            if tried:
                print_note(
                    f"{counted(tried, 'message')} tried; unconfirmed messages are still in the queue: run it again"
                )
            raise
    _print(result, queue, dry_run=dry_run, as_json=as_json)
    if result.stopped:
        raise typer.Exit(request.exit_code)
    if message_id is not None and result.passed_over == result.found:
        print_note(f"not found: no message {message_id!r} is in {queue!r}")
        raise typer.Exit(1)
    if result.tried < result.found or result.stayed:
        raise typer.Exit(1)


def _print(result: "Retry", queue: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        document = {
            "queue": queue,
            "dry_run": dry_run,
            "found": result.found,
            "published": result.published,
            "stayed": dict(result.stayed),
            "passed_over": result.passed_over,
            "stopped": result.stopped,
        }
        print_document(document)
        return
    done = "would be published again" if dry_run else "published again"
    print_line(f"{counted(result.published, 'message')} of {result.found:,} in {queue!r} {done}")
    for reason, count in result.stayed.most_common():
        print_note(f"{count:,} stay: {reason}")
    untried = result.found - result.tried
    if untried:
        print_note(f"{counted(untried, 'message')} not tried: {_why_untried(result)}")


def _why_untried(result: "Retry") -> str:
    if result.stopped:
        return "stopped; run it again for the remaining messages"
    return "too many stay" if result.left else "others take them from the queue"


_COLUMNS = ("queue", "of", "messages", "ready", "unacked", "consumers", "in", "out", "oldest")


def status(
    *,
    which: NameOptions,
    again: WatchOptions,
    on: BrokerOptions,
    as_json: JsonOption = False,
) -> None:
    """Show the queues of an ingress.

    The table shows messages, consumers and rates. In and out are messages a second. The oldest message is shown if
    messages have a timestamp and the broker reports it. A "?" marks an unknown value; without the management API there
    are more. --watch refreshes the table until Ctrl-C; with --json it prints one document a line.
    """
    from delaystore.ingress.topology import read_status

    names = which.names()
    seconds = again.seconds()
    with on.open("delaystore ingress") as client:
        found = read_status(client, names)
        if again.watch:
            _watch(client, names, seconds, as_json=as_json)
            return
    if as_json:
        print_document(_document(found))
    else:
        write("".join(f"{line}\n" for line in _lines(found)))
    if not found.good:
        raise typer.Exit(1)


def _watch(client: "BrokerClient", names: "IngressNames", seconds: float, *, as_json: bool) -> None:
    from delaystore.cli._signals import watch
    from delaystore.ingress.topology import read_status

    def document() -> dict[str, Any]:
        try:
            return _document(read_status(client, names))
        except TransportError as error:
            return {"good": False, "exchange": names.exchange, "problems": [str(error)]}

    def lines() -> list[str]:
        try:
            return _lines(read_status(client, names))
        except TransportError as error:
            return [f"{printable(names.exchange)}: {printable(str(error))}"]

    watch(lines, document, seconds, as_json=as_json)


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
    return {**asdict(queue), "availability": queue.availability.value, "oldest": oldest}


def _lines(found: "IngressStatus") -> list[str]:
    right = ("messages", "ready", "unacked", "consumers", "in", "out", "oldest")
    table = table_lines(_COLUMNS, [_row(queue) for queue in found.queues], right=right)
    lines: list[str] = []
    if found.waiting_in_plugin is not None:
        lines.append(f"{found.waiting_in_plugin:,} wait in the delayed-message plugin, whose exchange this is")
    if found.bound is not None:
        lines.append(f"queues behind {found.names.out!r}: {found.bound:,}")
    lines += [f"problem: {sentence}" for sentence in found.problems]
    lines += [f"not known: {sentence}" for sentence in found.unknown]
    lines.append(f"{found.names.exchange!r} on {found.broker}: {'good' if found.good else 'not good'}")
    return [*table, *(printable(line) for line in lines)]


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
