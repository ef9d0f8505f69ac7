"""`celery -A APP delaystore drain` and `... put-schedules`, by the entry point group `celery.commands`."""

import json
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from delaystore.errors import DelaystoreError
from delaystore.text import counted, named

if TYPE_CHECKING:
    from delaystore.integrations.celery._draining import Drained
    from delaystore.schedules import ScheduleChanges

INTERRUPTED: Final = 128 + signal.SIGINT
EACH: Final = 100
"""Messages, after which the progress is shown again."""


@click.group()
def delaystore() -> None:
    """Delayed tasks in delaystore."""


@delaystore.command("drain")
@click.option("-Q", "--queue", required=True, help="The queue whose waiting tasks move into the store.")
@click.option("--threshold", type=click.FloatRange(min=0), help="Seconds: move tasks due later. Default: the app's.")
@click.option(
    "--management",
    envvar="DELAYSTORE_MANAGEMENT",
    help="The management API, http[s]://[user:password@]host:15672; the login defaults to the broker's. A quorum queue "
    "needs it, which tells whether there is a delivery limit.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def drain_command(
    context: click.Context, queue: str, threshold: float | None, management: str | None, dry_run: bool, as_json: bool
) -> None:
    """Move tasks with an eta out of a queue into the store.

    Stop the workers first, so that the queue has their reserved tasks again. Run it again if it was interrupted.
    """
    from delaystore.integrations.celery._draining import drain  # every `celery` command imports this module

    try:
        with _stopping() as stop:
            app = context.obj.app
            app.loader.import_default_modules()  # tasks may have thresholds of their own
            app.finalize()
            drained = drain(
                app,
                queue,
                threshold=threshold,
                dry_run=dry_run,
                management=management or None,
                on_progress=_show,
                stop=stop.is_set,
            )
    except DelaystoreError as error:
        raise click.ClickException(str(error).replace("\n", " ")) from None
    click.echo(json.dumps(asdict(drained)) if as_json else _sentence(drained, queue, dry_run=dry_run))
    if drained.stopped:
        context.exit(INTERRUPTED)


@delaystore.command("put-schedules")
@click.option(
    "--prefix", default="celery/", show_default=True, help="The beginning of the schedules' names. It ends with /."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
@click.pass_context
def put_schedules_command(context: click.Context, prefix: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Put the app's beat_schedule into the store as recurring schedules.

    Run it when you deploy the app, in place of beat. The command deletes every other schedule whose name begins with
    the prefix. At a terminal it asks before it deletes schedules.
    """
    from delaystore.integrations.celery._tasks import BEAT, DelayedTasks  # as above

    if not prefix.endswith("/"):
        better = shlex.quote(f"{prefix}/" if prefix else BEAT)
        raise click.ClickException(
            f"the prefix {prefix!r} does not end with /, so it could cover schedules of others; write --prefix {better}"
        )
    try:
        app = context.obj.app
        app.loader.import_default_modules()  # one of them may make the DelayedTasks
        tasks = DelayedTasks.of(app)
        if not (dry_run or yes) and _can_ask():
            deleted = tasks.put_beat_schedule(prefix, dry_run=True).deleted
            if deleted:
                _confirm_deletion(context, deleted)
        changes = tasks.put_beat_schedule(prefix, dry_run=dry_run)
    except DelaystoreError as error:
        raise click.ClickException(str(error).replace("\n", " ")) from None
    click.echo(json.dumps(changes.as_dict()) if as_json else _changes_text(changes, dry_run=dry_run))


# These two do what `can_ask` and `confirm` of the command line do, whose library (typer) Celery does not install.
def _can_ask() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _confirm_deletion(context: click.Context, names: Sequence[str]) -> None:
    """Ask on the terminal. If the answer is no, or the input ends, end the command with exit code 1."""
    code = 1
    try:
        question = f"Delete {counted(len(names), 'schedule')}, with all waiting runs: {named(names)}?"
        if click.confirm(question, err=True):
            return
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            code = INTERRUPTED
    click.echo("nothing is changed", err=True)
    context.exit(code)


def _changes_text(changes: "ScheduleChanges", *, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    kinds = {"created": changes.created, "changed": changes.changed, "deleted": changes.deleted}
    lines = [f"{would}{kind}: {name}" for kind, names in kinds.items() for name in names]
    return "\n".join([*lines, f"unchanged: {changes.unchanged:,}"])


def _show(seen: int, total: int) -> None:
    if sys.stderr.isatty() and (seen % EACH == 0 or seen == total):
        click.echo(f"\r{seen:,} of {total:,} messages", nl=seen == total, err=True)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """The first Ctrl-C stores and acknowledges the current batch; the second one ends the process."""
    stop = threading.Event()

    def note_signal(_number: int, _frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _sentence(drained: "Drained", queue: str, *, dry_run: bool) -> str:
    parts = [f"{'would store' if dry_run else 'stored'} {drained.stored:,} of the tasks in {queue!r}"]
    if drained.known:
        parts.append(f"{drained.known:,} were in the store already")
    parts.append(f"{drained.left:,} stay in the queue")
    if drained.conflicting:
        parts.append(f"{drained.conflicting:,} of them because another task waits under their id")
    if drained.stopped:
        parts.append("stopped before all were looked at: run it again")
    return "; ".join(parts)
