"""`delaystore load`: rows of files into a store, by Spark."""

import shlex
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore.cli import _load_options as of_load
from delaystore.cli._load_options import (
    options_as_typed,
    parse_columns,
    parse_kind,
    read_with,
    require_existing,
)
from delaystore.cli._options import (
    DispatchedEndpoint,
    JsonOption,
    create_option,
    missing_file,
    parse_pair,
    require_file,
)
from delaystore.cli._output import print_note
from delaystore.cli._signals import StopRequest, stop_requests, tell_at_once
from delaystore.errors import DelaystoreError
from delaystore.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delaystore.bulk.request import DryRun, LoadReport, LoadRequest
    from delaystore.bulk.spark.loading import Tasks
    from delaystore.bulk.staging import LoadStore
    from delaystore.cli._progress import ProgressBar

_SMALL: Final = 16 * 2**20
"""Bytes of files that Spark reads within seconds of its start."""
_NOTHING_WRITTEN: Final = "a dry run writes nothing"


@options_as_typed()
def load(
    files: of_load.Files = None,
    mapping: of_load.Map = None,
    destination: of_load.RowQueueOption = None,
    *,
    rows: of_load.RowOptions,
    kind: of_load.Format = None,
    separator: of_load.Separator = None,
    master: of_load.Master = None,
    conf: of_load.Conf = None,
    spark_log: of_load.SparkLog = None,
    trial: of_load.TrialOptions,
    cleanup: of_load.Cleanup = False,
    create: Annotated[bool, create_option("load")] = False,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Load files of messages with Spark.

    A load stores all rows or none, and each row once. If you stop or kill it, the store shows no row of it; run it
    again with the same --load-id. If the endpoint has no tables, load fails; --create creates them. With --transport it
    rejects messages that the transport cannot carry. Spark needs Java 17. For clusters see docs/how-to/spark.md.
    """
    given = rows.given(where, destination)
    dry_run = trial.writes_nothing
    if cleanup:
        _clean_up(given, as_json=as_json)
        return
    from delaystore.bulk.spark.requirements import check_libraries, check_spark_can_run

    check_libraries()
    from delaystore.bulk.files import find_files

    settings = {key.strip(): value for key, value in (parse_pair(pair, "--conf") for pair in conf or ())}
    found = read_with(find_files(files or (), parse_kind(kind)), separator)
    check_spark_can_run()
    from delaystore.bulk.request import LoadRequest, finished_before
    from delaystore.bulk.staging import open_load_store
    from delaystore.cli._load_options import report_load

    request = LoadRequest(found, given, parse_columns(mapping or ()))
    with closing(open_load_store(request.given)) as opened:
        if not create:
            require_existing(opened, where, dry_run=dry_run)
        stored = missing_file(request.given.store) is None
        before = finished_before(request, opened) if stored or not dry_run else None
        if before is not None:
            report_load(before, as_json=as_json, again=request.given.again)
            return
        _preflight(request, opened, dry_run=dry_run)
    log = None if spark_log is None else Path(spark_log)
    left = _NOTHING_WRITTEN if dry_run else "nothing was loaded"
    spark = spark_run(master, settings, log, left=left, small=not found.elsewhere and found.size <= _SMALL)
    if dry_run:
        tried = _dry_run(request, spark, stored=stored, duplicates=not trial.preview)
        trial.report(tried, as_json=as_json)
    else:
        report_load(_load(request, spark), as_json=as_json)


def _load(request: "LoadRequest", spark: "AbstractContextManager[SparkRun]") -> "LoadReport":
    from delaystore.bulk.request import finished_meanwhile, left_by_failure
    from delaystore.bulk.spark.loading import load
    from delaystore.bulk.staging import open_load_store

    with spark as run:
        try:
            return load(run.spark, request, run)
        except DelaystoreError:
            if not run.stop.made:
                raise
            with closing(open_load_store(request.given)) as store:
                report = finished_meanwhile(request, store)
                if report is None:
                    print_note(f"stopped; {left_by_failure(request, store)}")
                    raise typer.Exit(run.stop.exit_code) from None
            print_note("too late to stop: the load was finished meanwhile")
            return report


def _dry_run(
    request: "LoadRequest", spark: "AbstractContextManager[SparkRun]", *, stored: bool, duplicates: bool
) -> "DryRun":
    from delaystore.bulk.spark.loading import dry_run

    with spark as run:
        try:
            return dry_run(run.spark, request, run, stored=stored, duplicates=duplicates)
        except DelaystoreError:
            if not run.stop.made:
                raise
            print_note(f"stopped; {_NOTHING_WRITTEN}")
            raise typer.Exit(run.stop.exit_code) from None


def _preflight(request: "LoadRequest", store: "LoadStore", *, dry_run: bool) -> None:
    """Find faults before Spark starts, which takes long; and name the command that suits few rows better."""
    from delaystore.bulk.files import check_files
    from delaystore.bulk.rejects import check_reject_folder
    from delaystore.bulk.request import check_columns, few_rows, make_ready
    from delaystore.bulk.spark.session import is_running
    from delaystore.cli._load_options import report_form

    request.files = check_files(request.files)
    report_form(request.files)
    check_columns(request)
    check_reject_folder(request.given)
    if not dry_run:
        make_ready(request, store)
    if not is_running() and (rows := few_rows(request.files)) is not None:
        (file,) = request.files.local
        command = f"delaystore send --file {shlex.quote(str(file))}"
        print_note(
            f"note: {counted(rows, 'row')}: `{command}`, with the same options, does this in seconds, without Spark"
        )


def _clean_up(options: dict[str, str], *, as_json: bool) -> None:
    from delaystore.bulk.options import write_options
    from delaystore.bulk.staging import cleanup
    from delaystore.cli._load_options import report_cleanup

    given = write_options(options)
    require_file(given.store)
    report_cleanup(cleanup(given), as_json=as_json)


@dataclass(frozen=True, slots=True)
class SparkRun:
    """A session, its progress bar, and whether it was asked to stop: then what Spark raises is no error."""

    spark: "SparkSession"
    stop: StopRequest
    bar: "ProgressBar"

    def watch(self, tasks: "Tasks") -> bool:
        """Move the bar. True: cancel."""
        step = "stopping" if self.stop.made else "finishing" if 0 < tasks.total == tasks.done else "loading"
        self.bar.show(f"{step} (tasks)", tasks.done, tasks.total or None)
        return self.stop.made


@contextmanager
def spark_run(
    master: str | None, settings: Mapping[str, str], log: Path | None, *, left: str, small: bool
) -> Iterator[SparkRun]:
    """Spark for the block. An interrupt ends its start at once, and its tasks later; a promotion is finished.

    `left`: the state if it does not start; `small`: there is little to do. Raises as `spark_session`, and typer.Exit
    where an interrupt came before the block began.
    """
    from delaystore.bulk.spark import register
    from delaystore.bulk.spark.session import Java, spark_session
    from delaystore.cli._progress import ProgressBar

    java, started = Java(), threading.Event()

    def give_up() -> None:
        if not started.is_set():
            tell_at_once("stopping: Spark is still starting")
            java.kill()

    with ProgressBar(transient=True) as bar, stop_requests(give_up) as stop, ExitStack() as stack:
        bar.show("starting Spark", 0, None)
        try:
            spark = stack.enter_context(spark_session(master, settings, log, java, small=small))
            register(spark)
        except Exception:
            if not stop.made:
                raise
            print_note(f"stopped; {left}")
            raise typer.Exit(stop.exit_code) from None
        started.set()
        yield SparkRun(spark, stop, bar)


__all__: list[str] = []
