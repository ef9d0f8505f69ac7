"""Writing a DataFrame: one load."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delaystore.errors import ConfigurationError, DelaystoreError, StoreUnavailableError
from delaystore.message import new_message_id
from delaystore.spark.conversion.planning import plan_conversion
from delaystore.spark.conversion.rejects import RejectFolder, reject_place
from delaystore.spark.keeping.client import KeeperClient
from delaystore.spark.options import WriteOptions, new_load_id
from delaystore.spark.rejections import Rejections
from delaystore.spark.staging import FinishedLoad, Holder, LoadKey, open_staging
from delaystore.spark.writing.promoting import promote
from delaystore.spark.writing.task import TaskReport, reports_of, stage

RENEWALS: Final = 3
"""Signs of life within the length of a lease."""


class BatchWriter(DataSourceArrowWriter):
    """Stages in tasks, and promotes in `commit`: all rows become visible at once, or none.

    Made in one of Spark's planning workers, pickled to the tasks and to another worker that commits. Making it begins
    the load. Raises ConfigurationError for columns or options that cannot work, StoreError and LoadError as
    `Staging.begin`; a load that was finished before is not read again, and nothing is stored.
    """

    def __init__(self, schema: StructType, options: WriteOptions, keeper: KeeperClient | None) -> None:
        key = LoadKey(options.load_id or new_load_id())
        began = datetime.now(UTC)
        self._conversion = plan_conversion(schema, options, load_id=options.load_id, began=began)
        rejects = reject_place(options)
        self._rejects = None if rejects is None else RejectFolder.of_load(rejects, key, run=new_message_id())
        self._on_duplicate = options.on_duplicate
        self._staging = open_staging(options, options.lease_seconds, None if keeper is None else Holder.of(keeper.pid))
        self._keeper = keeper
        self._lease = str(uuid4())
        self._finished = self._begin(key, options.lease_seconds / RENEWALS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows."""
        if self._finished is not None:
            return TaskReport(None, Rejections(), None)
        return stage(iterator, self._conversion, self._staging, self._rejects)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks have succeeded. If it raises, Spark calls `abort`."""
        if self._finished is None:
            promote(reports_of(messages), self._staging, self._rejects, self._on_duplicate)
            self._let_go()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - they may be missing
        """On the driver, when the load has failed: remove its staging, whatever the tasks have said of it."""
        if self._finished is not None:
            return
        self._let_go()
        try:
            if self._rejects is not None:
                self._rejects.forget_waiting()
        finally:
            self._staging.discard()

    def _begin(self, key: LoadKey, renewal_seconds: float) -> FinishedLoad | None:
        """Spark calls `abort` only of a writer that it has: what fails half begun is removed here."""
        try:
            finished = self._staging.begin(key)
            if finished is None and self._keeper is not None:
                self._keeper.renew(self._lease, self._staging, renewal_seconds)
        except StoreUnavailableError:
            raise
        except BaseException:
            with suppress(DelaystoreError):
                self._staging.discard()
            raise
        return finished

    def _let_go(self) -> None:
        if self._keeper is not None:
            with suppress(ConfigurationError):  # it has gone, which must not undo what was done
                self._keeper.let_go(self._lease)
