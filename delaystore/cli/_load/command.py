"""`delaystore load`: files into a store, by Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from delaystore.cli._arguments import parse_pair
from delaystore.cli._files import file_exists, require_file
from delaystore.cli._load.options import (
    Ambiguous,
    Cleanup,
    Conf,
    DryRun,
    Duplicates,
    Files,
    Format,
    KeyColumns,
    LoadId,
    Map,
    Master,
    Queue,
    Rejects,
    SparkLog,
    TimeZone,
    Unknown,
)
from delaystore.cli._options import Endpoint, Json, Schema, StoreUrl, Table, required
from delaystore.cli._output import print_document, say
from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.spark.options import AmbiguousTime, OnDuplicate, UnknownColumns

if TYPE_CHECKING:
    from delaystore.cli._load.run import SparkRun
    from delaystore.spark.loading.files import Kind
    from delaystore.spark.loading.report import LoadReport
    from delaystore.spark.loading.request import LoadRequest


def load(
    files: Files = None,
    mapping: Map = None,
    destination: Queue = None,
    load_id: LoadId = None,
    key_columns: KeyColumns = None,
    on_duplicate: Duplicates = OnDuplicate.ERROR,
    unknown_columns: Unknown = UnknownColumns.ERROR,
    time_zone: TimeZone = None,
    ambiguous_time: Ambiguous = AmbiguousTime.REJECT,
    rejects: Rejects = None,
    kind: Format = None,
    master: Master = None,
    conf: Conf = None,
    spark_log: SparkLog = None,
    dry_run: DryRun = False,
    cleanup: Cleanup = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Load files of messages into a store with Spark: all of them or none, each once.

    Sets up the store's tables (and a SQLite file) where they are missing. Stopped or killed at any point, nothing of
    it is seen; run it again with the same --load-id. Needs Java 17; see docs/spark.md for clusters.
    """
    options = {
        "store": required(store, "store", "--store URL", "DELAYSTORE_STORE"),
        "endpoint": required(endpoint, "endpoint", "--endpoint NAME", "DELAYSTORE_ENDPOINT"),
        "schema": schema,
        "table": table,
        "destination": destination,
        "loadId": load_id,
        "keyColumns": key_columns,
        "onDuplicate": on_duplicate.value,
        "unknownColumns": unknown_columns.value,
        "timeZone": time_zone,
        "ambiguousTime": ambiguous_time.value,
        "rejects": rejects,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if cleanup:
        _clean_up(given, as_json=as_json)
        return
    _run(given, files, kind, mapping, master, conf, spark_log, dry_run=dry_run, as_json=as_json)


def _run(
    options: dict[str, str],
    files: Files,
    kind: Format,
    mapping: Map,
    master: Master,
    conf: Conf,
    spark_log: SparkLog,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from delaystore.spark.loading.files import find_files
    from delaystore.spark.requirements import check_spark_can_run

    settings = {key.strip(): value for key, value in (parse_pair(pair, "--conf") for pair in conf or ())}
    found = find_files(files or (), None if kind is None else _kind(kind))
    check_spark_can_run()
    from delaystore.cli._load.run import SparkRun
    from delaystore.spark.loading.request import LoadRequest

    request = LoadRequest(found, options, _columns(mapping or ()))
    run = SparkRun(master, settings, None if spark_log is None else Path(spark_log))
    if dry_run:
        _dry_run(request, run, as_json=as_json)
    else:
        _load(request, run, as_json=as_json)


def _load(request: "LoadRequest", run: "SparkRun", *, as_json: bool) -> None:
    from delaystore.spark.loading.request import finished_before, finished_meanwhile, left_by_failure, load

    report = finished_before(request)
    if report is None:
        with run:
            try:
                report = load(run.spark, request, run)
            except DelaystoreError:
                if not run.stopped:
                    raise
                report = finished_meanwhile(request)
                if report is None:
                    say(f"stopped; {left_by_failure(request)}")
                    raise typer.Exit(run.exit_code) from None
                say("too late to stop: the load was finished meanwhile")
    _show_load(report, as_json=as_json)


def _dry_run(request: "LoadRequest", run: "SparkRun", *, as_json: bool) -> None:
    from delaystore.cli._load.reports import dry_run_document, print_dry_run
    from delaystore.spark.loading.dry_run import dry_run
    from delaystore.spark.loading.request import finished_before

    stored = file_exists(request.given.store)
    before = finished_before(request) if stored else None
    if before is not None:
        _show_load(before, as_json=as_json)
        return
    with run:
        try:
            report = dry_run(run.spark, request, run, stored=stored)
        except DelaystoreError:
            if not run.stopped:
                raise
            say("stopped; a dry run writes nothing")
            raise typer.Exit(run.exit_code) from None
    if as_json:
        print_document(dry_run_document(report))
    else:
        print_dry_run(report)


def _show_load(report: "LoadReport", *, as_json: bool) -> None:
    from delaystore.cli._load.reports import load_document, print_load

    if as_json:
        print_document(load_document(report))
    else:
        print_load(report)


def _clean_up(options: dict[str, str], *, as_json: bool) -> None:
    from delaystore.cli._load.reports import cleanup_document, print_cleanup
    from delaystore.spark.options import write_options
    from delaystore.spark.staging import cleanup

    given = write_options(options)
    require_file(given.store)
    cleaned = cleanup(given)
    if as_json:
        print_document(cleanup_document(cleaned))
    else:
        print_cleanup(cleaned)


def _kind(name: str) -> "Kind":
    from delaystore.spark.loading.files import Kind

    try:
        return Kind(name.lower())
    except ValueError:
        raise ConfigurationError(f"--format must be one of {', '.join(Kind)}, not {name!r}") from None


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    """From texts such as `due_time=send_at` to the file's column of each message column."""
    from delaystore.spark.conversion.columns import MESSAGE_COLUMNS

    columns: dict[str, str] = {}
    for pair in pairs:
        given, column = (part.strip() for part in parse_pair(pair, "--map"))
        name = given.lower()
        if name not in MESSAGE_COLUMNS:
            raise ConfigurationError(f"--map {pair!r}: a message has no {given!r}; it has {', '.join(MESSAGE_COLUMNS)}")
        if name in columns:
            raise ConfigurationError(f"--map gives {name} twice")
        if not column:
            raise ConfigurationError(f"--map {pair!r} names no column")
        columns[name] = column
    return columns
