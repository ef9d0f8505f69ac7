"""`delaystore cancel` and `reschedule`: safe while a dispatcher runs."""

from typing import Annotated

import typer

from delaystore.cli._arguments import parse_due
from delaystore.cli._options import At, Delay, Endpoint, Json, MessageId, Schema, StoreUrl, Table
from delaystore.cli._output import print_document, say, tell
from delaystore.stores.abc import ManagementOutcome

_WHY_NOT = {
    ManagementOutcome.BEING_DISPATCHED: "being dispatched",
    ManagementOutcome.NOT_FOUND: "not found",
}


def cancel(
    message_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The ids of the messages.")],
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Cancel waiting messages. Exit code 1: one is being dispatched, or does not wait here.

    Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        outcomes = {message_id: opened.delivery.cancel(message_id) for message_id in message_ids}
    if as_json:
        results = [{"message_id": message_id, "outcome": outcome.value} for message_id, outcome in outcomes.items()]
        print_document({"results": results})
    else:
        for message_id, outcome in outcomes.items():
            _report(outcome, message_id, f"cancelled: {message_id}")
    _exit_unless_done(*outcomes.values())


def reschedule(
    message_id: MessageId,
    delay: Delay = None,
    at: At = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Give a waiting message a new due time. Exit code 1: it is being dispatched, or does not wait here.

    Creates no table and no file.
    """
    after, instant = parse_due(delay, at)
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        outcome = opened.delivery.reschedule(message_id, delay=after, at=instant)
    if as_json:
        print_document({"message_id": message_id, "outcome": outcome.value})
    else:
        _report(outcome, message_id, f"rescheduled: {message_id}")
    _exit_unless_done(outcome)


def _report(outcome: ManagementOutcome, message_id: str, done: str) -> None:
    if outcome is ManagementOutcome.DONE:
        tell(done)
    else:
        say(f"{_WHY_NOT[outcome]}: {message_id}")


def _exit_unless_done(*outcomes: ManagementOutcome) -> None:
    if any(outcome is not ManagementOutcome.DONE for outcome in outcomes):
        raise typer.Exit(1)
