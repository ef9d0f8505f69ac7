"""A request to load files into a store, and what becomes of it."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from delaystore.errors import ConfigurationError
from delaystore.loading.options import new_load_id, write_options
from delaystore.loading.reading.counts import count_rows
from delaystore.loading.reading.files import DataFiles
from delaystore.loading.rejects.file_systems import absolute
from delaystore.loading.rejects.folder import kept_rejects, reject_folder
from delaystore.loading.report import LoadReport
from delaystore.loading.staging import LoadKey, LoadState, LoadStore, open_load_store


class LoadRequest:
    """A load. `options`: the format's, by name; `mapping`: the file's column of a message's column.

    `given`: the options, checked; `load_id`: the load's id in the store's registry, a new one where none is given.
    Raises ConfigurationError for options that cannot work.
    """

    def __init__(self, files: DataFiles, options: Mapping[str, str], mapping: Mapping[str, str]) -> None:
        self.files = files
        self.mapping = mapping
        self.given = write_options(options)
        if self.given.key_columns and self.given.load_id is None:
            raise ConfigurationError("ids are derived from the options keyColumns and loadId; give both")
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

    Raises StoreError for a store that cannot be reached, LoadError where what was rejected cannot be read.
    """
    status = next(iter(store.loads(request.load_id)), None)
    if status is None or status.state is not LoadState.FINISHED:
        return None
    return LoadReport(
        load_id=request.given.load_id,
        stored=status.stored or 0,
        skipped=status.skipped,
        rejects=kept_rejects(request.load_id, request.given),
        finished_before=status.finished_at,
        rows=count_rows(request.files),
    )


def make_ready(request: LoadRequest, store: LoadStore) -> None:
    """Make what the load writes to, where it is missing: before Spark starts, so that what fails does not take long.

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
    """What is true of the load if it has failed, or was stopped: the end of a sentence."""
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
