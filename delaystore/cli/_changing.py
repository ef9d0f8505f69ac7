"""`delaystore cancel` and `reschedule`: safe while a dispatcher runs."""

from collections.abc import Mapping
from typing import Annotated

import typer

from delaystore.cli._arguments import parse_due
from delaystore.cli._options import At, Delay, Endpoint, Json, Key, Schema, StoreUrl, Table, id_or_key
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import ConfigurationError
from delaystore.stores.abc import ManagementOutcome

_WHY_NOT = {
    ManagementOutcome.BEING_DISPATCHED: "being dispatched",
    ManagementOutcome.NOT_FOUND: "not found",
}


def cancel(
    message_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The ids of the messages.")] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="A message's key; repeatable.")] = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Cancel waiting messages. Exit code 1: one is being dispatched, or does not wait here.

    Creates no table and no file.
    """
    if not message_ids and not key:
        raise ConfigurationError("which messages? pass their ids, or --key KEY")
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        outcomes = [({"message_id": each}, opened.delivery.cancel(each)) for each in message_ids or ()]
        outcomes += [({"key": each}, opened.delivery.cancel(key=each)) for each in key or ()]
    if as_json:
        print_document({"results": [{**named, "outcome": outcome.value} for named, outcome in outcomes]})
    else:
        for named, outcome in outcomes:
            _report(outcome, named, "cancelled")
    _exit_unless_done(*(outcome for _, outcome in outcomes))


def reschedule(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="The message's id.")] = None,
    key: Key = None,
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
    named = id_or_key(message_id, key)
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        outcome = opened.delivery.reschedule(message_id, key=key, delay=after, at=instant)
    if as_json:
        print_document({**named, "outcome": outcome.value})
    else:
        _report(outcome, named, "rescheduled")
    _exit_unless_done(outcome)


def _report(outcome: ManagementOutcome, named: Mapping[str, str], done: str) -> None:
    name = named.get("message_id") or f"key {named['key']}"
    if outcome is ManagementOutcome.DONE:
        tell(f"{done}: {name}")
    else:
        say(f"{_WHY_NOT[outcome]}: {name}")


def _exit_unless_done(*outcomes: ManagementOutcome) -> None:
    if any(outcome is not ManagementOutcome.DONE for outcome in outcomes):
        raise typer.Exit(1)
