"""What one task attempt stages."""

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from delaystore.errors import DelaystoreError, LoadLostError, StoreSetupError
from delaystore.loading.arrow import STAGED
from delaystore.loading.staging._sql.database import LoadDatabase
from delaystore.loading.staging._sql.registry import Registry
from delaystore.loading.staging.abc import AttemptSink, StagedAttempt

CHUNK_BYTES: Final = 64 * 2**20
"""Bytes that are sorted and copied at once; an attempt takes three or four times as much memory."""
CHUNK_ROWS: Final = 500_000
RENEWALS: Final = 4
"""Signs of life in the time of a lease."""
_logger: Final = logging.getLogger(__name__)


class SqlSink(AttemptSink):
    """Collects rows to chunks; each is sorted by message_id, and copied in a transaction of its own."""

    def __init__(self, database: LoadDatabase, token: str, lost: threading.Event) -> None:
        self._database, self._staging, self._lost = database, database.staging(token), lost
        self._attempt = secrets.randbits(63)
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = self._count = 0

    @override
    def write(self, batch: pa.RecordBatch) -> None:
        if batch.nbytes > CHUNK_BYTES and batch.num_rows > 1:
            half = batch.num_rows // 2
            self.write(batch.slice(0, half))
            self.write(batch.slice(half))
            return
        if self._bytes + batch.nbytes > CHUNK_BYTES or self._rows + batch.num_rows > CHUNK_ROWS:
            self._copy()
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows

    @override
    def finish(self) -> StagedAttempt:
        self._copy()
        return StagedAttempt(str(self._attempt), self._count)

    def _copy(self) -> None:
        if self._lost.is_set():
            raise LoadLostError("the load was taken over, or given up after a time without a sign of life")
        if not self._rows:
            return
        rows = self._taken()
        try:
            with self._database.writing() as bound:
                self._database.dialect.copy(bound.connection, self._staging, self._attempt, rows)
        except StoreSetupError:
            raise LoadLostError(
                f"the load's table {self._staging.name!r} is gone: the load was finished, given up or taken over"
            ) from None
        self._count += rows.num_rows

    def _taken(self) -> pa.RecordBatch:
        """What was collected, as one sorted batch; nothing remains collected."""
        table = pa.Table.from_batches(self._waiting, STAGED)
        self._waiting, self._bytes, self._rows = [], 0, 0
        batch = table.combine_chunks().to_batches()[0]
        return batch.take(pc.sort_indices(batch.column("message_id")))


@contextmanager
def sql_sink(opened: AbstractContextManager[LoadDatabase], token: str, lease: timedelta) -> Iterator[SqlSink]:
    """A sink for one attempt, which keeps the lease alive while the block lasts."""
    lost, ended = threading.Event(), threading.Event()
    with opened as database:
        registry = Registry(database)

        def keep_alive() -> None:
            while not ended.wait(lease.total_seconds() / RENEWALS):
                try:
                    if not registry.renew(token, lease):
                        lost.set()
                        return
                except DelaystoreError as error:
                    _logger.warning("the lease of a load could not be renewed, which is tried again: %s", error)

        beat = threading.Thread(target=keep_alive, name="delaystore-lease", daemon=True)
        beat.start()
        try:
            yield SqlSink(database, token, lost)
        finally:
            ended.set()
            beat.join()
