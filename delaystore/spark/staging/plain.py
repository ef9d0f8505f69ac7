"""Loading into a store of which only the contract is known."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

import pyarrow as pa

from delaystore.errors import ConfigurationError, DuplicateMessageError
from delaystore.message import DelayedMessage
from delaystore.settings import TransactionMode
from delaystore.spark.options import OnDuplicate, StoreOptions, WriteOptions
from delaystore.spark.staging.abc import AttemptSink, FinishedLoad, LoadKey, StagedAttempt, Staging
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.registry import open_store
from delaystore.stores.sql.codec import decode_mapping

BATCH: Final = 1000
"""Messages in one call of `store_many`."""


@dataclass(frozen=True, slots=True)
class PlainAttempt(StagedAttempt):
    """`skipped`: how many of `count` waited already."""

    skipped: int = 0


class PlainStaging(Staging):
    """No staging at all: each task stores its rows at once, and there is no way back.

    A load is neither all or nothing nor remembered: others see it grow, and what a failed load has stored stays. A
    message_id that waits already is left as it is, so that a task that is repeated adds nothing, unless what it stored
    has been dispatched meanwhile. Therefore only onDuplicate=ignore is possible.
    """

    guarantee: ClassVar[str] = "each row at once, at least once; not all or nothing, and not remembered"
    after_failure: ClassVar[str] = "what was stored until then stays"

    def __init__(self, options: StoreOptions) -> None:
        open_store(options.store).close()  # an unknown store is told before what such stores can do
        if isinstance(options, WriteOptions) and options.on_duplicate is not OnDuplicate.IGNORE:
            raise ConfigurationError(_ONLY_IGNORE)
        if options.schema is not None or options.table is not None:
            raise ConfigurationError("the options schema and table are for SQL stores; leave them out")
        self._options = options
        self._key: LoadKey | None = None

    def begin(self, key: LoadKey) -> FinishedLoad | None:
        """See the contract; nothing is ever known to be finished."""
        self._key = key
        with _opened(self._options) as store:
            store.setup_infrastructure()
        return None

    def join(self, key: LoadKey) -> FinishedLoad | None:
        """As `begin`."""
        return self.begin(key)

    @contextmanager
    def attempt(self) -> Iterator[AttemptSink]:
        """See the contract; an exception leaves what is stored."""
        with _opened(self._options) as store:
            yield _PlainSink(store)

    def promote(self, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
        """Only counts."""
        if on_duplicate is not OnDuplicate.IGNORE:
            raise ConfigurationError(_ONLY_IGNORE)
        if self._key is None:
            raise ConfigurationError("this load was not begun; call begin first")
        skipped = sum(attempt.skipped for attempt in attempts if isinstance(attempt, PlainAttempt))
        stored = sum(attempt.count for attempt in attempts) - skipped
        return FinishedLoad(self._key, datetime.now(UTC), stored, skipped)

    def renew(self) -> None:
        """There is no lease."""

    def discard(self) -> None:
        """There is nothing to remove."""


_ONLY_IGNORE: Final = (
    "this store takes messages at once, so that a load cannot be undone; say onDuplicate=ignore if that is "
    "what you want, or load into PostgreSQL, MariaDB, MySQL or SQLite"
)


class _PlainSink(AttemptSink):
    def __init__(self, store: DelayedMessageStore) -> None:
        self._store = store
        self._count = self._skipped = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, BATCH):
            messages = [_message(row) for row in batch.slice(start, BATCH).to_pylist()]
            self._skipped += self._store_new(messages)
            self._count += len(messages)

    def finish(self) -> StagedAttempt:
        return PlainAttempt("", self._count, self._skipped)

    def _store_new(self, messages: Sequence[DelayedMessage]) -> int:
        """Store those that do not wait already; how many do. After a duplicate nobody knows what was stored."""
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


def _message(row: dict[str, object]) -> DelayedMessage:
    headers, properties = (decode_mapping(row.pop(name)) for name in ("headers", "properties"))  # type: ignore[arg-type]
    return DelayedMessage(headers=headers, properties=properties, **row)  # type: ignore[arg-type]


@contextmanager
def _opened(options: StoreOptions) -> Iterator[DelayedMessageStore]:
    store = open_store(options.store)
    try:
        store.initialize(options.endpoint, TransactionMode.NONE)
        yield store
    finally:
        store.close()
