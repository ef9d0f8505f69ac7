"""One run of a load, staged in a table beside the one in which messages wait."""

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from itertools import islice

from sqlalchemy import select
from typing_extensions import override

from delaystore.errors import ConfigurationError, LoadLostError, StoreError
from delaystore.keys import KeyRule
from delaystore.loading.options import REJECTED, OnDuplicate, StoreOptions, WriteOptions
from delaystore.loading.staging._loads import LoadStatus
from delaystore.loading.staging._owner import Owner
from delaystore.loading.staging._sql.database import LoadDatabase, kept_database, load_database
from delaystore.loading.staging._sql.leftovers import clean_up
from delaystore.loading.staging._sql.promotion import Promotion
from delaystore.loading.staging._sql.registry import Registry, status_of
from delaystore.loading.staging._sql.sink import sql_sink
from delaystore.loading.staging.abc import AttemptSink, FinishedLoad, Lease, LoadKey, StagedAttempt, Staging
from delaystore.sql.names import TOKEN_LENGTH

_TIME_DIGITS = 12
_ASKED = 500
"""Ids in one question: every database takes as many parameters."""


class SqlStaging(Staging):
    """One run of a load. Without a `database` that was opened for it, each operation connects for itself.

    The run's token is made with this object and travels with it, so that every process which has a copy is the same
    run. The table is made with `begin` and dropped after the promotion, by `discard`, or by the next load's `begin`.
    A stream's runs share one token, by which the registry knows the first of them, and one table.
    """

    def __init__(
        self, options: StoreOptions, lease_seconds: int, owner: Owner | None, database: LoadDatabase | None = None
    ) -> None:
        self._options, self._database = options, database
        self._lease = timedelta(seconds=lease_seconds)
        self._owner = owner
        self._token = new_token()
        self._key: LoadKey | None = None

    def __repr__(self) -> str:
        return f"SqlStaging({self._options!r}, token={self._token!r})"

    @property
    @override
    def lease(self) -> Lease:
        given = self._options
        store = StoreOptions(store=given.store, endpoint=given.endpoint, schema=given.schema, table=given.table)
        return Lease(store, self._token, self._lease.total_seconds())

    @override
    def begin(self, key: LoadKey) -> FinishedLoad | None:
        self._key = key
        with self._opened() as database:
            database.set_up()
            finished = Registry(database).take(key, self._token, self._owner_now(), self._lease)
            clean_up(database, self._token)
            if finished is None:
                database.create_staging(self._token)
            return finished

    @override
    def join(self, key: LoadKey) -> FinishedLoad | None:
        self._key = key
        with self._opened() as database:
            database.set_up()
            joined = Registry(database).join(key, self._token, self._owner_now(), self._lease)
            if isinstance(joined, FinishedLoad):
                return joined
            self._token = joined
            if not database.has(database.staging(joined)):
                clean_up(database, joined)
                database.create_staging(joined)
            return None

    @override
    def attempt(self) -> AbstractContextManager[AttemptSink]:
        opened = kept_database(self._options) if self._database is None else nullcontext(self._database)
        return sql_sink(opened, self._token, self._lease)

    @override
    def promote(self, attempts: Sequence[StagedAttempt], on_duplicate: OnDuplicate) -> FinishedLoad:
        if self._key is None:
            raise ConfigurationError("this load was not begun; call begin or join first")
        with self._opened(patient=True) as database:
            promotion = Promotion(database, self._token, self._lease, self._key, attempts, on_duplicate, self._key_rule)
            finished = promotion.run()
            with suppress(StoreError):  # the load is finished all the same; the next one removes what is left
                clear = database.drop if self._key.batch is None else database.empty
                clear(database.staging(self._token).name)
            return finished

    @override
    def renew(self) -> None:
        """As in the contract; LoadLostError if another run has the load now."""
        with self._opened() as database:
            _renew(database, self._token, self._lease)

    @override
    def discard(self) -> None:
        """A table that an attempt still writes to is left to the next cleanup."""
        with self._opened() as database:
            if database.has(database.registry):
                Registry(database).discard(self._token)
            database.drop(database.staging(self._token).name)

    def _opened(self, *, patient: bool = False) -> AbstractContextManager[LoadDatabase]:
        """`patient`: a statement may take hours, for which some drivers need connections of their own."""
        if self._database is None or (patient and self._database.dialect.patience):
            return load_database(self._options, patient=patient)
        return nullcontext(self._database)

    @property
    def _key_rule(self) -> KeyRule:
        return self._options.key_rule if isinstance(self._options, WriteOptions) else REJECTED

    def _owner_now(self) -> Owner:
        """Spark runs this in a short-lived worker: its parent lives as long as the driver or executor."""
        return self._owner or Owner.of(os.getppid())


def renew_lease(lease: Lease) -> None:
    """Let a load's lease begin anew. Raises LoadLostError if another run has the load now, and StoreError."""
    with load_database(lease.store) as database:
        _renew(database, lease.token, timedelta(seconds=lease.seconds))


def _renew(database: LoadDatabase, token: str, lease: timedelta) -> None:
    if not Registry(database).renew(token, lease):
        raise LoadLostError("the load was finished, given up or taken over")


def new_token() -> str:
    """A name for a run; a later one of the same computer compares greater."""
    moment = f"{time.time_ns() // 1_000_000:0{_TIME_DIGITS}x}"
    return moment + secrets.token_hex((TOKEN_LENGTH - _TIME_DIGITS) // 2)


def statuses(database: LoadDatabase, load_id: str | None = None) -> Sequence[LoadStatus]:
    """The loads into the endpoint, the newest last; or the one of that id, if it is known."""
    if not database.has(database.registry):
        return []
    now = database.store.now()
    with database.reading() as connection:
        return [status_of(row, now) for row in Registry(database).rows(connection, load_id)]


def waiting_among(database: LoadDatabase, ids: Iterable[str]) -> set[str]:
    """Which of these ids are those of messages in the endpoint's table; none where there is no table yet."""
    if not database.has(database.live):
        return set()
    found: set[str] = set()
    left = iter(ids)
    column = database.live.c.message_id
    with database.reading() as connection:
        while some := list(islice(left, _ASKED)):
            found.update(connection.scalars(select(column).where(column.in_(some))))
    return found
