"""`delaystore demo`."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from delaystore.amounts import counted
from delaystore.cli._options import Json, Schema, StoreUrl, TransportUrl
from delaystore.cli._output import print_document, print_table, say
from delaystore.cli._signals import stop_requests


def demo(
    messages: Annotated[int, typer.Option(min=1, max=10_000_000, metavar="NUMBER", help="How many messages.")] = 1000,
    seconds: Annotated[
        float, typer.Option(min=0, max=86_400, metavar="NUMBER", help="Over how long they fall due.")
    ] = 5,
    store: StoreUrl = None,
    transport: TransportUrl = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Watch it work: schedule, wait, dispatch, receive.

    Compares what was sent with what arrived. Needs no server: without options it uses a SQLite store and a SQL queue
    in one temporary file, exactly once. With a store and transport of yours it uses tables and queues of its own
    there, and removes them; memory:// stays in this process. Exit code 1: something was lost, duplicated or early.
    """
    from delaystore.cli._progress_bar import ProgressBar
    from delaystore.demo import Demo, demo_endpoint

    with stop_requests() as stop, _opened(store, transport, schema) as opened, demo_endpoint(*opened, say) as own:
        guarantee = "store and queue share a database: exactly once" if own.exactly_once else "at least once"
        say(f"{counted(messages, 'message')} over {seconds:g} s; {guarantee}")
        with ProgressBar() as bar:
            report = Demo(own, messages, seconds, bar.show, lambda: stop.made).run()
    if as_json:
        print_document(report.as_dict())
    else:
        print_table(("demo", "result"), report.rows(), right=("result",))
    if report.interrupted:
        say("stopped")
        raise typer.Exit(stop.exit_code)
    if not report.good:
        raise typer.Exit(1)


@contextmanager
def _opened(store: str | None, transport: str | None, schema: str | None) -> Iterator[tuple[Any, Any]]:
    """The store given, or a temporary SQLite file; the transport given, or SQL queues in the store's database."""
    from delaystore.cli._endpoint import EndpointOptions

    with ExitStack() as stack:
        if store is None:
            directory = stack.enter_context(TemporaryDirectory(prefix="delaystore-demo-"))
            store = f"sqlite:///{Path(directory) / 'demo.db'}"
        options = EndpointOptions(store=store, schema=schema, transport=transport or store, memory=True)
        yield stack.enter_context(closing(options.open_store())), stack.enter_context(closing(options.open_transport()))
