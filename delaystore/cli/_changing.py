"""`delaystore cancel` and `reschedule`: safe while a dispatcher runs."""

from collections.abc import Mapping
from typing import Annotated

import typer

from delaystore.cli import _filters as filters
from delaystore.cli._acting import By, acting
from delaystore.cli._arguments import parse_due
from delaystore.cli._bulk import BulkChange, DryRun, Resume, Yes
from delaystore.cli._options import (
    At,
    Delay,
    Destination,
    Endpoint,
    Json,
    Key,
    Schema,
    StoreUrl,
    Table,
    all_option,
    id_or_key,
)
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import ConfigurationError
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import OperationKind

_WHY_NOT = {
    ManagementOutcome.BEING_DISPATCHED: "being dispatched",
    ManagementOutcome.NOT_FOUND: "not found",
}


def cancel(
    message_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The ids of the messages.")] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="A message's key; repeatable.")] = None,
    destination: Destination = None,
    since: filters.Since = None,
    until: filters.Until = None,
    id_prefix: filters.IdPrefix = None,
    header: filters.Headers = None,
    failing: filters.Failing = False,
    paused: filters.Paused = False,
    every: Annotated[bool, all_option("cancel")] = False,
    dry_run: DryRun = False,
    resume: Resume = None,
    yes: Yes = False,
    by: By = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Cancel waiting messages, by id, key or filter.

    By filter it works in steps, from which it can be resumed, and what is stored meanwhile may or may not be cancelled.
    Exit code 1: a message is being dispatched, and was left alone, or (by id or key) does not wait here. Creates no
    table and no file.
    """
    wanted = filters.filter_of(destination, since, until, id_prefix, header, failing=failing, paused=paused)
    bulk = BulkChange(OperationKind.CANCEL, wanted, dry_run=dry_run, resume=resume, yes=yes, as_json=as_json)
    is_bulk = bulk.is_meant(named=bool(message_ids or key), every=every)
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        operations = acting(opened, by)
        if is_bulk:
            bulk.make(opened, operations, lambda: operations.begin_cancel(wanted))
            return
        # tables of an earlier release keep no audit trail
        cancel_one = operations.cancel_one if operations.are_available else opened.delivery.cancel
        outcomes = [({"message_id": each}, cancel_one(each)) for each in message_ids or ()]
        outcomes += [({"key": each}, cancel_one(key=each)) for each in key or ()]
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
    destination: Destination = None,
    since: filters.Since = None,
    until: filters.Until = None,
    id_prefix: filters.IdPrefix = None,
    header: filters.Headers = None,
    failing: filters.Failing = False,
    paused: filters.Paused = False,
    every: Annotated[bool, all_option("reschedule")] = False,
    dry_run: DryRun = False,
    resume: Resume = None,
    yes: Yes = False,
    by: By = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Give waiting messages a new due time, by id, key or filter.

    They get fresh retries, too. By filter all get the same time. It works in steps, from which it can be resumed, and
    what is stored meanwhile may or may not be rescheduled. Exit code 1: a message is being dispatched, and was left
    alone, or (by id or key) does not wait here. Creates no table and no file.
    """
    wanted = filters.filter_of(destination, since, until, id_prefix, header, failing=failing, paused=paused)
    bulk = BulkChange(OperationKind.RESCHEDULE, wanted, dry_run=dry_run, resume=resume, yes=yes, as_json=as_json)
    is_bulk = bulk.is_meant(named=message_id is not None or key is not None, every=every)
    if resume is not None and not (delay is None and at is None):
        raise ConfigurationError("an operation that is resumed has its due time already; leave out --delay and --at")
    after, instant = (None, None) if resume is not None else parse_due(delay, at)
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        operations = acting(opened, by)
        if is_bulk:
            bulk.make(opened, operations, lambda: operations.begin_reschedule(wanted, delay=after, at=instant))
            return
        named = id_or_key(message_id, key)
        reschedule_one = operations.reschedule_one if operations.are_available else opened.delivery.reschedule
        outcome = reschedule_one(message_id, key=key, delay=after, at=instant)
    if as_json:
        print_document({**named, "outcome": outcome.value})
    else:
        _report(outcome, named, "rescheduled")
    _exit_unless_done(outcome)


def _report(outcome: ManagementOutcome, named: Mapping[str, str], done: str) -> None:
    if outcome is ManagementOutcome.DONE:
        tell(f"{done}: {_name(named)}")
    else:
        say(f"{_WHY_NOT[outcome]}: {_name(named)}")


def _name(named: Mapping[str, str]) -> str:
    return named.get("message_id") or f"key {named['key']}"


def _exit_unless_done(*outcomes: ManagementOutcome) -> None:
    if any(outcome is not ManagementOutcome.DONE for outcome in outcomes):
        raise typer.Exit(1)
