"""`delaystore operations`: changes of many messages, which run, were interrupted, or have ended."""

from typing import Annotated

import typer

from delaystore import documents
from delaystore.cli._acting import By, acting
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli._output import print_document, print_table, say, tell
from delaystore.stores.operable import Operation, OperationState
from delaystore.times import time_text

operations_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
"""The group to which this one belongs reports errors."""


@operations_app.callback()
def operations(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="How many, at most.")] = 20,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """List changes of many messages, the last one first.

    Those that run, were interrupted, or have ended. A running one that nobody works on goes on with `delaystore cancel
    --resume ID`, or reschedule. Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table)
    context.obj = options
    if context.invoked_subcommand is not None:
        return
    with options.open() as opened:
        found = opened.delivery.operations.operations(limit)
    if as_json:
        print_document({"operations": documents.field(found)})
    elif not found:
        tell("no operation was begun")
    else:
        columns = ("operation", "began", "state", "changed", "what")
        print_table(columns, [_row(each) for each in found], right=("changed",), unbroken=columns[:-1])


@operations_app.command()
def abandon(
    context: typer.Context,
    operation_id: Annotated[str, typer.Argument(metavar="OPERATION", help="Its id.")],
    by: By = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """End an operation; what it has changed stays changed. Exit code 1: there is none, or it had ended before.

    Whoever works on it stops after the step that is in progress.
    """
    from delaystore.cli._endpoint import EndpointOptions

    before: EndpointOptions = context.obj
    options = EndpointOptions(
        store=store or before.store,
        endpoint=endpoint or before.endpoint,
        schema=schema or before.schema,
        table=table or before.table,
    )
    with options.open() as opened:
        operations = acting(opened, by)
        known = operations.operation(operation_id)
        ended = operations.abandon(operation_id)
    if ended is None or known is None:
        say(f"not found: no operation {operation_id!r}; `delaystore operations` lists them")
        raise typer.Exit(1)
    if as_json:
        print_document(documents.record(ended))
    elif known.state is not OperationState.RUNNING:
        say(f"it has ended already: {known.state}")
    else:
        tell(f"abandoned: {operation_id} ({ended.changed:,} messages were changed before)")
    if known.state is not OperationState.RUNNING:
        raise typer.Exit(1)


def _row(operation: Operation) -> tuple[str, ...]:
    """The whole id: it is typed again."""
    when = "" if operation.due_time is None else f" to {time_text(operation.due_time)}"
    what = f"{operation.kind}{when}: {operation.wanted}"
    return operation.operation_id, time_text(operation.began), operation.state.value, f"{operation.changed:,}", what
