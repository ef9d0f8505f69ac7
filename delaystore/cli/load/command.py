"""`delaystore load`: files into a store, by Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from delaystore.cli.files import file_exists, require_file
from delaystore.cli.load.options import (
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
from delaystore.cli.load.wording import words_of_the_command
from delaystore.cli.opening import required
from delaystore.cli.options import Endpoint, Json, Schema, StoreUrl, Table
from delaystore.cli.output import print_document, say
from delaystore.errors import ConfigurationError, DelaystoreError
from delaystore.spark.options import AmbiguousTime, OnDuplicate, UnknownColumns

if TYPE_CHECKING:
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
    with words_of_the_command():
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
    from delaystore.spark.loading.files import find_files, kind_of_name
    from delaystore.spark.loading.java import check_spark_can_run

    settings = dict(_setting(pair) for pair in conf or ())
    found = find_files(files or (), None if kind is None else kind_of_name(kind))
    check_spark_can_run()
    from delaystore.spark.loading.mapping import parse_mapping
    from delaystore.spark.loading.request import LoadRequest

    request = LoadRequest(found, options, parse_mapping(mapping or ()))
    log = None if spark_log is None else Path(spark_log)
    if dry_run:
        _rehearse(request, master, settings, log, as_json=as_json)
    else:
        _load(request, master, settings, log, as_json=as_json)


def _load(
    request: "LoadRequest", master: str | None, settings: dict[str, str], log: Path | None, *, as_json: bool
) -> None:
    from delaystore.cli.load.reports import load_document, print_load
    from delaystore.cli.load.run import SparkRun
    from delaystore.spark.loading.loading import finished_before, finished_meanwhile, left_by_failure, load

    report = finished_before(request)
    if report is None:
        with SparkRun(master, settings, log) as run:
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
    if as_json:
        print_document(load_document(report))
    else:
        print_load(report)


def _rehearse(
    request: "LoadRequest", master: str | None, settings: dict[str, str], log: Path | None, *, as_json: bool
) -> None:
    from delaystore.cli.load.reports import load_document, print_load, print_rehearsal, rehearsal_document
    from delaystore.cli.load.run import SparkRun
    from delaystore.spark.loading.loading import finished_before
    from delaystore.spark.loading.rehearsing import rehearse

    stored = file_exists(request.given.store)
    report = finished_before(request) if stored else None
    if report is not None:
        print_document(load_document(report)) if as_json else print_load(report)
        return
    with SparkRun(master, settings, log) as run:
        try:
            rehearsal = rehearse(run.spark, request, run, stored=stored)
        except DelaystoreError:
            if not run.stopped:
                raise
            say("stopped; a dry run writes nothing")
            raise typer.Exit(run.exit_code) from None
    if as_json:
        print_document(rehearsal_document(rehearsal))
    else:
        print_rehearsal(rehearsal)


def _clean_up(options: dict[str, str], *, as_json: bool) -> None:
    from delaystore.cli.load.reports import cleanup_document, print_cleanup
    from delaystore.spark.options import write_options
    from delaystore.spark.staging import cleanup

    given = write_options(options)
    require_file(given.store)
    cleaned = cleanup(given)
    if as_json:
        print_document(cleanup_document(cleaned))
    else:
        print_cleanup(cleaned)


def _setting(pair: str) -> tuple[str, str]:
    key, mark, value = pair.partition("=")
    if not mark or not key:
        raise ConfigurationError(f"--conf {pair!r} is not of the form KEY=VALUE")
    return key.strip(), value
