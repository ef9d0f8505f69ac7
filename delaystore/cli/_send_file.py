"""`delaystore send --file`: a small file's messages into a store, by this process alone."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import typer

from delaystore.cli._endpoint import EndpointOptions
from delaystore.cli._files import missing_file
from delaystore.cli._input import standard_input
from delaystore.cli._load.options import parse_columns, parse_kind, require_existing
from delaystore.cli._load.reports import report_dry_run, report_load
from delaystore.cli._output import say
from delaystore.cli._signals import stop_requests
from delaystore.errors import ConfigurationError, DelaystoreError, MissingDependencyError
from delaystore.extras import installing
from delaystore.stores.operable import Change, ChangeAction, Way

if TYPE_CHECKING:
    from delaystore.loading.files import DataFiles
    from delaystore.loading.request import DryRun, LoadReport, LoadRequest
    from delaystore.loading.staging import LoadStore
    from delaystore.progress import ProgressListener

MOST: Final = 1_000_000
_WATCHED: Final = 10_000
"""Rows from which on progress is shown."""
_STDIN: Final = "-"


def send_file(
    file: str,
    options: Mapping[str, str],
    where: EndpointOptions,
    *,
    mapping: Sequence[str],
    kind: str | None,
    create: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Store the messages of a file (`-`: standard input), all of them or none; or say what would be stored.

    `options`: those of a load, by their names. `where`: the endpoint, which must exist unless `create`. `mapping` and
    `kind`: as typed.
    """
    _check_arrow()
    from delaystore.loading.rejects import check_reject_folder
    from delaystore.loading.request import DryRun, LoadRequest, check_files, finished_before
    from delaystore.loading.staging import open_load_store

    with _found(file, kind) as found:
        request = LoadRequest(found, options, parse_columns(mapping))
        request.given = replace(request.given, noted_as=_replacing())
        with closing(open_load_store(request.given)) as store:
            if not create:
                require_existing(store, where, dry_run=dry_run)
            stored = missing_file(request.given.store) is None
            before = finished_before(request, store) if stored or not dry_run else None
            if before is not None:
                report_load(before, as_json=as_json)
                return
            check_reject_folder(request.given)
            request.files = check_files(found)
            report = _stored(request, store, _count(request, file), dry_run=dry_run, stored=stored)
    if isinstance(report, DryRun):
        report_dry_run(report, as_json=as_json)
    else:
        report_load(report, as_json=as_json)


def _replacing() -> Change:
    from delaystore.operations.changes import user_at_host

    return Change(by=user_at_host(), way=Way.CLI, action=ChangeAction.REPLACE)


def _stored(
    request: "LoadRequest", store: "LoadStore", total: int | None, *, dry_run: bool, stored: bool
) -> "LoadReport | DryRun":
    from delaystore.loading.request import DirectLoad, finished_meanwhile, left_by_failure

    with _progress(total) as show, stop_requests() as stop:

        def watch(done: int) -> bool:
            show("stopping" if stop.made else "finishing" if done == total else "sending", done, total)
            return stop.made

        load = DirectLoad(request, store, watch)
        try:
            return load.dry_run(stored=stored) if dry_run else load.run()
        except DelaystoreError:
            if not stop.made:
                raise
            meanwhile = None if dry_run else finished_meanwhile(request, store)
            if meanwhile is not None:
                say("too late to stop: the messages were stored meanwhile")
                return meanwhile
            say(f"stopped; {'a dry run writes nothing' if dry_run else left_by_failure(request, store)}")
            raise typer.Exit(stop.exit_code) from None


@contextmanager
def _progress(total: int | None) -> Iterator["ProgressListener"]:
    """A bar, unless so few rows are stored before it could be drawn."""
    from delaystore.progress import unwatched

    if total is not None and total < _WATCHED:
        yield unwatched
        return
    from delaystore.cli._progress_bar import ProgressBar

    with ProgressBar(transient=True) as bar:
        yield bar.show


@contextmanager
def _found(file: str, kind: str | None) -> Iterator["DataFiles"]:
    """The file; what comes from standard input is kept in one for the block, for it is read more than once."""
    from delaystore.loading.files import find_file

    read_as = parse_kind(kind)
    if file != _STDIN:
        yield find_file(file, read_as)
        return
    if read_as is None:
        raise ConfigurationError("standard input does not say how it is written; add --format csv, json or parquet")
    with TemporaryDirectory(prefix="delaystore-") as folder:
        path = Path(folder, "standard-input")
        try:
            with path.open("wb") as copy:
                shutil.copyfileobj(standard_input(), copy)
        except OSError as error:
            raise ConfigurationError(f"standard input cannot be copied to {folder}: {error.strerror}") from None
        yield find_file(str(path), read_as)


def _count(request: "LoadRequest", file: str) -> int | None:
    """How many rows there are, with a word on which command suits so many; ConfigurationError for too many."""
    from delaystore.loading.files import count_rows
    from delaystore.loading.request import FEW_ROWS

    rows = count_rows(request.files)
    if rows is not None and rows > MOST:
        raise ConfigurationError(
            f"{file!r} has {rows:,} rows, and --file takes up to {MOST:,}; use `delaystore load`, with the same options"
        )
    if rows is not None and rows > FEW_ROWS:
        say(f"note: {rows:,} rows; `delaystore load`, with the same options, suits more than {FEW_ROWS:,}")
    return rows


def _check_arrow() -> None:
    try:
        import pyarrow  # noqa: F401 - what reads the rows
    except ModuleNotFoundError:
        raise MissingDependencyError(f"pyarrow is not installed, which --file needs; {installing('parquet')}") from None
