"""`delaystore destinations` and `changes`: what is paused or limited, and who changed what."""

from typing import Annotated, Any

import typer

from delaystore import documents
from delaystore.amounts import limit_text
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli._output import print_document, print_table, say, tell
from delaystore.stores.operable import Destination
from delaystore.times import parse_instant, time_text


def destinations(
    backlog: Annotated[
        bool, typer.Option("--backlog", help="Also how many messages wait for each; reads all that waits.")
    ] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """List the destinations that are paused or limited.

    With --backlog, all that messages wait for. Creates no table and no file.
    """
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        operations = opened.delivery.operations
        told = {each.name: each for each in operations.destinations()}
        waiting = operations.backlog() if backlog else {}
    names = [*waiting, *(name for name in told if name not in waiting)]
    if as_json:
        found = [_document(name, told.get(name), waiting.get(name, 0) if backlog else None) for name in names]
        print_document({"destinations": found})
    elif not names:
        tell("no message waits" if backlog else "no destination is paused or limited")
    else:
        numbers = ["waiting"] if backlog else []
        rows = [(name, *(f"{waiting.get(name, 0):,}" for _ in numbers), *_cells(told.get(name))) for name in names]
        print_table(
            ("destination", *numbers, "state", "limit", "by"), rows, right=(*numbers, "limit"), unbroken=numbers
        )


def changes(
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="How many, at most.")] = 100,
    before: Annotated[str | None, typer.Option(metavar="TIME", help="Only what was changed before this time.")] = None,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """List who changed what, by which way, the last changes first.

    At the end it says, on standard error, whose changes are noted and how long they are kept, as running dispatchers
    report it. Creates no table and no file.
    """
    instant = None if before is None else parse_instant(before, "--before")
    from delaystore.cli._endpoint import EndpointOptions

    with EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table).open() as opened:
        found = opened.delivery.operations.changes(limit, instant)
        kept = opened.delivery.operations.audit_kept()
    if as_json:
        print_document({"changes": documents.field(found), **documents.record(kept)})
        return
    rows = [(time_text(each.at), each.by, each.way or "", each.action, f"{each.count:,}", each.about) for each in found]
    columns = ("when", "who", "way", "what", "messages", "of")
    print_table(columns, rows, right=("messages",), unbroken=("when", "way", "what", "messages"))
    say(str(kept))


def _document(name: str, told: Destination | None, waiting: int | None) -> dict[str, Any]:
    """`waiting` None: not counted."""
    known = {"name": name} if told is None else documents.record(told)
    return known if waiting is None else {**known, "waiting": waiting}


def _cells(told: Destination | None) -> tuple[str, str, str]:
    if told is None:
        return "", "", ""
    state = "resuming" if told.resuming else "paused" if told.paused else ""
    if told.paused_until is not None and told.paused:
        state = f"paused until {time_text(told.paused_until)}"
    return state, "" if told.max_rate is None else limit_text(told.max_rate), told.by
