"""`delaystore demo`."""

from typing import TYPE_CHECKING, Annotated

import typer

from delaystore.cli.options import Json, Schema, StoreUrl, TransportUrl
from delaystore.cli.output import counted, print_document, print_table, say
from delaystore.cli.signals import StopRequest, stop_requests

if TYPE_CHECKING:
    from delaystore.cli.demo.report import DemoReport


def demo(
    messages: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many messages.")] = 1000,
    seconds: Annotated[float, typer.Option(min=0, max=86_400, help="Over how long they fall due.")] = 5,
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
    from delaystore.cli.demo.bars import Bars
    from delaystore.cli.demo.run import Demo
    from delaystore.cli.demo.stage import set_stage

    with stop_requests() as stop, set_stage(store, transport, schema) as stage:
        say(f"{counted(messages, 'message')} over {seconds:g} s; {_guarantee(stage.exactly_once)}")
        with Bars(messages) as bars:
            report = Demo(stage, messages, seconds, bars, stop).run()
    if as_json:
        print_document(report.as_dict())
    else:
        print_table(("demo", "result"), report.rows(), right=("result",))
    _end(report, stop)


def _end(report: "DemoReport", stop: StopRequest) -> None:
    if report.interrupted:
        say("stopped")
        raise typer.Exit(stop.exit_code)
    if not report.good:
        raise typer.Exit(1)


def _guarantee(exactly_once: bool) -> str:
    return "store and queue share a database: exactly once" if exactly_once else "at least once"
