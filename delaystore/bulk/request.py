"""A load of files: its request, the checks ahead, its run without Spark, and its report."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyarrow as pa

from delaystore.bulk.attempts import promote, stage
from delaystore.bulk.columns import is_known
from delaystore.bulk.conversion import FirstRows, plan_conversion
from delaystore.bulk.csv_files import separator_line_error
from delaystore.bulk.files import DataFiles, Kind, can_be_checked, count_rows
from delaystore.bulk.options import OnDuplicate, WriteOptions, new_load_id, write_options
from delaystore.bulk.preview import DueCounts, LoadPreview, preview_of
from delaystore.bulk.rejects import (
    MAX_EXAMPLES,
    RejectFolder,
    Rejects,
    absolute,
    count_rejects,
    kept_rejects,
    reject_folder,
)
from delaystore.bulk.rows import FileRows, parquet_columns, read_rows
from delaystore.bulk.staging import LoadKey, LoadOwner, LoadState, LoadStore, Staging, cancelled_error, open_load_store
from delaystore.errors import ConfigurationError, DelaystoreError, LoadError
from delaystore.message import new_message_id

# What a load has done, or would do.


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The result of a load.

    `load_id`: None: it was not named, and will not be recognised. `stored`: messages; `skipped`: duplicates; None:
    this store counts neither. `finished_before`: when an earlier run finished this load; then nothing was done now,
    and `stored`, `skipped` and `rejects` are of that run. `rows`: how many the files have now, if that run had more or
    fewer; None: as many, or not counted. `guarantee`: the promise of a store that cannot stage; None: all or
    nothing. `seconds`: 0 where the load was asked to stop too late.
    """

    load_id: str | None
    stored: int | None
    skipped: int | None
    rejects: Rejects = field(default_factory=Rejects)
    seconds: float = 0.0
    finished_before: datetime | None = None
    rows: int | None = None
    guarantee: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the files have more rows, or fewer, than the run that finished this load."""
        return self.rows is not None


class Obstacle(StrEnum):
    """Why a load would fail, and store nothing."""

    REJECTS = "rejects"
    """Rows cannot be messages, and there is no folder for them."""
    TWICE = "twice"
    """A message_id comes twice in the files."""
    WAITING = "waiting"
    """A message_id waits in the store already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The result that a load would have.

    `messages`: rows that can be messages. `twice`: those of them whose id came before in the load, None: duplicates
    were not looked up; `waiting`: ids that wait in the store already, None: this store cannot list them; examples of
    each. `given`: the load's options. `preview`: when the messages are due.
    """

    given: WriteOptions
    messages: int
    rejects: Rejects
    twice: int | None
    waiting: int | None
    twice_examples: tuple[str, ...]
    waiting_examples: tuple[str, ...]
    seconds: float
    preview: LoadPreview = field(default_factory=LoadPreview)

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Why the load would fail; none: it would not."""
        found = []
        if self.given.rejects is None and self.rejects.count:
            found.append(Obstacle.REJECTS)
        if self.given.on_duplicate is not OnDuplicate.IGNORE and self.twice:
            found.append(Obstacle.TWICE)
        if self.given.on_duplicate is OnDuplicate.ERROR and self.waiting:
            found.append(Obstacle.WAITING)
        return tuple(found)

    @property
    def would_store(self) -> int:
        """How many messages; an upper bound where `twice` or `waiting` is None."""
        if self.obstacles:
            return 0
        skipped = (self.twice or 0) + (self.waiting or 0)
        return self.messages - (skipped if self.given.on_duplicate is OnDuplicate.IGNORE else 0)


# A request to load files into a store, and what becomes of it.


class LoadRequest:
    """A load. `options`: the format's, by name; `mapping`: the file's column of a message's column.

    `given`: the options, checked; `load_id`: the load's id in the store's registry, a new one where none is given.
    Raises ConfigurationError for options that cannot work.
    """

    def __init__(self, files: DataFiles, options: Mapping[str, str], mapping: Mapping[str, str]) -> None:
        self.files = files
        self.mapping = mapping
        self.given = write_options(options)
        if self.given.id_columns and self.given.load_id is None:
            raise ConfigurationError("ids are derived from the options idColumns and loadId; give both")
        self.load_id = self.given.load_id or new_load_id()
        # Spark's workers are in the folder in which Java was started
        folder = {} if self.given.rejects is None else {"rejects": absolute(self.given.rejects)}
        self._options = {**options, **folder}

    def options_to_write(self) -> dict[str, str]:
        """Those for Spark's writer."""
        others = {name: value for name, value in self._options.items() if name.lower() != "loadid"}
        return {**others, "loadId": self.load_id}

    def options_to_read(self) -> dict[str, str]:
        """Those for Spark's reader of the same endpoint."""
        given = self.given
        where = {"store": given.store, "endpoint": given.endpoint, "schema": given.schema, "table": given.table}
        return {name: value for name, value in where.items() if value is not None}


def finished_before(request: LoadRequest, store: LoadStore) -> LoadReport | None:
    """The report of a load that an earlier run has finished; None: there is something to do. Needs no Spark.

    Raises StoreError for a store that cannot be reached, LoadError where rejected rows cannot be read, and
    ConfigurationError for a load that was cancelled, unless it is to be loaded again.
    """
    status = next(iter(store.loads(request.load_id)), None)
    if status is not None and status.cancelled_at is not None:
        if request.given.again:
            return None
        raise cancelled_error(status)
    if status is None or status.state is not LoadState.FINISHED:
        return None
    rejects, rows = kept_rejects(request.load_id, request.given), count_rows(request.files)
    rejected = rejects.count if status.rejected is None else status.rejected
    before = (status.stored or 0) + (status.skipped or 0) + rejected
    return LoadReport(
        load_id=request.given.load_id,
        stored=status.stored or 0,
        skipped=status.skipped,
        rejects=rejects,
        finished_before=status.finished_at,
        rows=None if rows == before else rows,
    )


def make_ready(request: LoadRequest, store: LoadStore) -> None:
    """Make missing tables of the load before Spark starts, so that a failure does not take long.

    Raises StoreError, and ConfigurationError for a folder of rejects that cannot be made.
    """
    store.set_up()
    reject_folder(request.given, LoadKey(request.load_id))


def finished_meanwhile(request: LoadRequest, store: LoadStore) -> LoadReport | None:
    """The report of a load that was asked to stop when it could no longer be stopped; None: it is not finished.

    Raises as `finished_before`.
    """
    report = finished_before(request, store)
    if report is None:
        return None
    return replace(report, finished_before=None, rows=None)


def left_by_failure(request: LoadRequest, store: LoadStore) -> str:
    """The state of the load if it has failed, or was stopped: the end of a sentence."""
    return store.staging(request.given.lease_seconds).after_failure


def report_of(request: LoadRequest, seconds: float) -> LoadReport:
    """The report of a load that other processes have just finished, in that time. Raises as `finished_before`."""
    with closing(open_load_store(request.given)) as store:
        status = next(iter(store.loads(request.load_id)), None)
        guarantee = store.staging(request.given.lease_seconds).guarantee if status is None else None
    return LoadReport(
        load_id=request.given.load_id,
        stored=None if status is None else status.stored or 0,
        skipped=None if status is None else status.skipped,
        rejects=kept_rejects(request.load_id, request.given),
        seconds=seconds,
        guarantee=guarantee,
    )


# What can be known of a load's files before Spark starts, in the words that Spark's reader would be answered with.

FEW_ROWS: Final = 100_000
_SMALL: Final = 64 * 2**20
"""Bytes of a file whose rows are counted."""
_READ_THROUGH: Final = 16 * 2**20
"""Bytes of JSON lines that are read for their keys; of more, only Spark finds them all."""


def check_columns(request: LoadRequest) -> None:
    """ConfigurationError for files whose columns cannot be messages, as far as that can be known here.

    Left to Spark: files elsewhere, files that only it can unpack, folders that are columns (day=1), long JSON lines,
    and Parquet files that differ.
    """
    files = request.files
    if files.form is not None and files.form.names_separator:
        raise separator_line_error()
    if files.elsewhere or not all(map(can_be_checked, files.local)) or any(map(_in_column, files.local)):
        return
    columns = _columns_of(files, request.mapping)
    if columns is not None and all(map(is_known, columns.types)):  # else Spark may know it
        plan_conversion(columns, request.given, datetime.now(UTC))


def few_rows(files: DataFiles) -> int | None:
    """How many rows a file has that a process alone loads sooner than Spark starts. None: there are more, or files."""
    if files.elsewhere or len(files.local) != 1 or files.size > _SMALL or _in_column(files.local[0]):
        return None
    rows = count_rows(files)
    return None if rows is None or rows > FEW_ROWS else rows


def _in_column(path: Path) -> bool:
    return any("=" in folder for folder in path.parts[:-1])


def _columns_of(files: DataFiles, mapping: Mapping[str, str]) -> pa.Schema | None:
    """The columns of the files' rows; None: only Spark can tell."""
    path, *others = files.local
    if files.kind is Kind.JSON and (others or files.size > _READ_THROUGH):
        return None
    if files.kind is Kind.PARQUET and any(parquet_columns(other) != parquet_columns(path) for other in others):
        return None
    return read_rows(path, files, mapping).columns


# A file into a store by this process alone, without Spark: all of it or nothing.

Watch = Callable[[int], bool]
"""Called with how many rows were read. True: stop."""


class DirectLoad:
    """A file of a request, whose columns can be messages, into an open store. `watch` is asked after each batch.

    Raises ConfigurationError for a file or options that cannot work.
    """

    def __init__(self, request: LoadRequest, store: LoadStore, watch: Watch) -> None:
        (path,) = request.files.local
        self._request, self._store = request, store
        self._watch = watch
        self._rows: FileRows = read_rows(path, request.files, request.mapping)
        self._conversion = plan_conversion(self._rows.columns, request.given, datetime.now(UTC))

    def run(self) -> LoadReport:
        """Store the messages. LoadError if it was stopped; RejectedRowsError, DuplicateMessageError and their kin."""
        clock, given = time.monotonic(), self._request.given
        key = LoadKey(self._request.load_id)
        folder = reject_folder(given, key, run=new_message_id())
        staging = self._store.staging(given.lease_seconds, LoadOwner.of(os.getpid()))
        try:
            finished = staging.begin(key)
            if finished is None:
                attempt = stage(self._batches(), self._conversion, staging, folder, self._first_rows())
                rejects, finished = attempt.rejects, promote([attempt], staging, folder, given.on_duplicate)
            else:
                rejects = kept_rejects(self._request.load_id, given)
        except BaseException:  # also an interrupt: the next load need not wait until the lease of this one has ended
            _give_up(staging, folder)
            raise
        return LoadReport(
            load_id=given.load_id,
            stored=finished.stored,
            skipped=finished.skipped,
            rejects=rejects,
            seconds=time.monotonic() - clock,
            guarantee=None if staging.remembers else staging.guarantee,
        )

    def dry_run(self, *, stored: bool, duplicates: bool = True) -> DryRun:
        """The result that `run` would have; it writes nothing.

        `stored`: whether there is a store to ask, too. `duplicates`: whether to look for duplicates.
        """
        clock, given = time.monotonic(), self._request.given
        ids: Counter[str] = Counter()
        rejects, first_rows = Rejects(), self._first_rows()
        due, messages = DueCounts(), 0
        for batch in self._batches():
            converted = self._conversion.convert(batch, first_rows)
            rejects += count_rejects(converted.rejected)
            due.add(converted.staged)
            messages += converted.staged.num_rows
            if duplicates:
                ids.update(converted.staged.column("message_id").to_pylist())
        twice = sorted(name for name, count in ids.items() if count > 1)
        waiting = self._store.waiting_ids(ids) if stored and duplicates else set[str]()
        return DryRun(
            given=given,
            messages=messages,
            rejects=rejects,
            twice=messages - len(ids) if duplicates else None,
            waiting=None if waiting is None else len(waiting),
            twice_examples=tuple(twice[:MAX_EXAMPLES]),
            waiting_examples=tuple(sorted(waiting or ())[:MAX_EXAMPLES]),
            preview=preview_of(due.counts(), self._store.store if stored else None),
            seconds=time.monotonic() - clock,
        )

    def _first_rows(self) -> FirstRows | None:
        """What rejects rows whose id came before. None: the store decides about them, for the whole load."""
        given = self._request.given
        return None if given.rejects is None or given.on_duplicate is OnDuplicate.IGNORE else FirstRows()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in self._rows.batches():
            yield batch
            done += batch.num_rows
            self._go_on(done)

    def _go_on(self, done: int) -> None:
        if self._watch(done):
            raise LoadError("the load was stopped")


def _give_up(staging: Staging, rejects: RejectFolder | None) -> None:
    """Remove the remains of a failed load; the next load removes the rest."""
    with suppress(DelaystoreError):
        staging.discard()
    with suppress(DelaystoreError):  # after it: an attempt that still runs finds its load gone, and removes its file
        if rejects is not None:
            rejects.remove_pending()
