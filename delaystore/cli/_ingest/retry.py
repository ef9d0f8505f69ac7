"""`delaystore ingest retry`."""

from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.amounts import counted
from delaystore.cli._broker_options import BrokerUrl, DryRun
from delaystore.cli._errors.options import Reason
from delaystore.cli._options import Json, required
from delaystore.cli._output import print_document, say, tell
from delaystore.cli._signals import stop_requests
from delaystore.errors import TransportError

if TYPE_CHECKING:
    from delaystore.ingress.rejected import Retry


def retry(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The rejected queue, as in orders.ingress.rejected.")],
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="One message, by its id.")] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    as_json: Json = False,
) -> None:
    """Publish rejected messages again to where they came from, once the cause is corrected: all, by id or by reason.

    Each goes to the exchange, and under the routing key, that its publisher gave, as it was. An x-delay counts from
    now. A message leaves QUEUE once the broker has confirmed it. What is rejected anew stays there, with its new
    reason. `delaystore errors list --messages --error-queue QUEUE` shows what is in it. Exit code 1: some stay, and it
    says why.
    """
    from delaystore.cli._progress_bar import ProgressBar
    from delaystore.ingress.rejected import RejectedFilter, retry_rejected
    from delaystore.transports.rabbitmq import RabbitMQTransport

    url = required(broker, "broker", "--broker URL", "DELAYSTORE_BROKER")
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
                say(f"{counted(tried, 'message')} tried; what was not confirmed is in the queue: run it again")
            raise
    _print(result, queue, dry_run=dry_run, as_json=as_json)
    if result.stopped:
        raise typer.Exit(request.exit_code)
    if message_id is not None and result.passed_over == result.found:
        say(f"not found: no message {message_id!r} is in {queue!r}")
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
    tell(f"{counted(result.published, 'message')} of {result.found:,} in {queue!r} {done}")
    for reason, count in result.stayed.most_common():
        say(f"{count:,} stay: {reason}")
    untried = result.found - result.tried
    if untried:
        say(f"{counted(untried, 'message')} not tried: {_why_untried(result)}")


def _why_untried(result: "Retry") -> str:
    if result.stopped:
        return "stopped; run it again for the rest"
    return "too many stay" if result.left else "others take them from the queue"
