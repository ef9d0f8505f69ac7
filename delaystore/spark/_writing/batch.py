"""Writing a DataFrame: one load."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from delaystore.errors import ConfigurationError, DelaystoreError, StoreUnavailableError
from delaystore.loading.attempts import promote
from delaystore.loading.conversion import plan_conversion
from delaystore.loading.options import WriteOptions, new_load_id
from delaystore.loading.rejects import reject_folder
from delaystore.loading.staging import FinishedLoad, LoadKey, Owner, open_staging
from delaystore.message import new_message_id
from delaystore.spark._driver_service.client import DriverClient
from delaystore.spark._schemas import fields_of
from delaystore.spark._writing._remarks import empty_load, finished_before, warn, warn_of_rejects
from delaystore.spark._writing.task import TaskReport, count_rows, reports_of, stage

RENEWALS: Final = 3
"""Signs of life within the length of a lease."""


class BatchWriter(DataSourceArrowWriter):
    """Stages in tasks, and promotes in `commit`: all rows become visible at once, or none.

    Made in one of Spark's planning workers, pickled to the tasks and to another worker that commits. Making it begins
    the load. Raises ConfigurationError for columns or options that cannot work, StoreError and LoadError as
    `Staging.begin`. Of a load that was finished before, rows are counted and nothing is stored; the user is told so.
    """

    def __init__(self, schema: StructType, options: WriteOptions, driver: DriverClient | None) -> None:
        key = LoadKey(options.load_id or new_load_id())
        self._conversion = plan_conversion(fields_of(schema), options, datetime.now(UTC))
        self._rejects = reject_folder(options, key, run=new_message_id())
        self._on_duplicate = options.on_duplicate
        self._staging = open_staging(options, options.lease_seconds, None if driver is None else Owner.of(driver.pid))
        self._driver = driver
        self._lease = str(uuid4())
        self._finished = self._begin(key, options.lease_seconds / RENEWALS)

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows, unless the load was finished before."""
        if self._finished is not None:
            return TaskReport(again=count_rows(iterator))
        return stage(iterator, self._conversion, self._staging, self._rejects)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks have succeeded. If it raises, Spark calls `abort`."""
        reports = reports_of(messages)
        finished = self._finished
        if finished is None:
            finished = promote(reports, self._staging, self._rejects, self._on_duplicate)
            self._stop_renewing()
            warn_of_rejects(self._driver, reports, self._rejects)
            if not finished.brought:
                warn(self._driver, empty_load(finished))
        else:
            rejected = 0 if self._rejects is None else sum(1 for _ in self._rejects.kept_lines())
            warn(self._driver, finished_before(finished, sum(report.again for report in reports), rejected))

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when the load has failed: remove its staging, whatever the tasks have said of it."""
        if self._finished is not None:
            return
        self._stop_renewing()
        try:
            if self._rejects is not None:
                self._rejects.remove_pending()
        finally:
            self._staging.discard()

    def _begin(self, key: LoadKey, renewal_seconds: float) -> FinishedLoad | None:
        """Begin the load. Spark aborts only a writer that it has, so what fails half-way is removed here."""
        try:
            finished = self._staging.begin(key)
            if finished is None and self._driver is not None:
                self._driver.renew_lease(self._lease, self._staging, renewal_seconds)
        except StoreUnavailableError:
            raise
        except BaseException:
            with suppress(DelaystoreError):
                self._staging.discard()
            raise
        return finished

    def _stop_renewing(self) -> None:
        if self._driver is not None:
            with suppress(ConfigurationError):  # the driver service has gone, which must not undo what was done
                self._driver.stop_renewing(self._lease)
