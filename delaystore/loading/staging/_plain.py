"""Loading into a store of which only the contract is known."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import ClassVar, Final

import pyarrow as pa
from typing_extensions import override

from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.loading.options import OnDuplicate, StoreOptions, WriteOptions
from delaystore.loading.staging.abc import AttemptSink, FinishedLoad, LoadKey, StagedAttempt, Staging
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.sql.columns import completed
from delaystore.stores import open_store
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.sql.rows import to_readable_message

BATCH: Final = 1000
"""Messages in one call of `store_many`."""


class PlainStaging(Staging):
    """No staging at all: each task stores its rows at once, and there is no way back.

    A load is neither all or nothing nor remembered: others see it grow, and what a failed load has stored stays. A
    message_id that waits already is left as it is, so that a task that is repeated adds nothing, unless what it stored
    has been dispatched meanwhile. Therefore only onDuplicate=ignore is possible.
    """

    guarantee: ClassVar[str] = "each row at once, at least once; not all or nothing, and not remembered"
    after_failure: ClassVar[str] = "what was stored until then stays"
    remembers: ClassVar[bool] = False

    def __init__(self, options: StoreOptions, store: DelayedMessageStore | None = None) -> None:
        """`store`: what was opened with these options, which were checked; None: each process opens its own."""
        self._options, self._store = options, store
        self._key: LoadKey | None = None

    @override
    def begin(self, key: LoadKey) -> FinishedLoad | None:
        """Nothing is ever known to be finished."""
        self._key = key
        with self._opened() as store:
            store.setup_infrastructure()
        return None

    @override
    def join(self, key: LoadKey) -> FinishedLoad | None:
        return self.begin(key)

    @override
    @contextmanager
    def attempt(self) -> Iterator[AttemptSink]:
        """An exception leaves what is stored."""
        with self._opened() as store:
            yield _PlainSink(store)

    @override
    def promote(self, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
        """Only counts."""
        if on_duplicate is not OnDuplicate.IGNORE:
            raise ConfigurationError(_ONLY_IGNORE)
        if self._key is None:
            raise ConfigurationError("this load was not begun; call begin first")
        skipped = sum(attempt.skipped for attempt in attempts)
        stored = sum(attempt.count for attempt in attempts) - skipped
        return FinishedLoad(self._key, datetime.now(UTC), stored, skipped)

    @override
    def renew(self) -> None:
        """There is no lease."""

    @override
    def discard(self) -> None:
        """There is nothing to remove."""

    @contextmanager
    def _opened(self) -> Iterator[DelayedMessageStore]:
        if self._store is not None:
            yield self._store
            return
        with closing(open_store(self._options.store)) as store:
            store.initialize(self._options.endpoint, TransactionMode.NONE)
            yield store


def check_plain_options(options: StoreOptions) -> None:
    """ConfigurationError for options that need a SQL store."""
    if isinstance(options, WriteOptions) and options.on_duplicate is not OnDuplicate.IGNORE:
        raise ConfigurationError(_ONLY_IGNORE)
    if isinstance(options, WriteOptions) and options.key_column is not None:
        raise ConfigurationError("the option keyColumn is for SQL stores; leave it out")
    if options.schema is not None or options.table is not None:
        raise ConfigurationError("the options schema and table are for SQL stores; leave them out")


_ONLY_IGNORE: Final = (
    "this store takes messages at once, so that a load cannot be undone; set the option onDuplicate to ignore if "
    "that is what you want, or load into PostgreSQL, MariaDB, MySQL or SQLite"
)


class _PlainSink(AttemptSink):
    def __init__(self, store: DelayedMessageStore) -> None:
        self._store = store
        self._count = self._skipped = 0

    @override
    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, BATCH):
            messages = [to_readable_message(completed(row, int)) for row in batch.slice(start, BATCH).to_pylist()]
            self._skipped += self._store_new(messages)
            self._count += len(messages)

    @override
    def finish(self) -> StagedAttempt:
        return StagedAttempt("", self._count, self._skipped)

    def _store_new(self, messages: Sequence[DelayedMessage]) -> int:
        """Store those that do not wait already; returns how many do. Stores one by one once there is a duplicate."""
        try:
            self._store.store_many(messages)
        except DuplicateMessageError:
            return sum(not self._stored(message) for message in messages)
        return 0

    def _stored(self, message: DelayedMessage) -> bool:
        try:
            self._store.store(message)
        except DuplicateMessageError:
            return False
        return True
