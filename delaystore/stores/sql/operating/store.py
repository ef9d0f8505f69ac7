"""What operators need of a SQL store: each call a transaction of its own, or, where much may be changed, a few."""

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from typing_extensions import override

from delaystore.errors import StoreError
from delaystore.filters import MessageFilter
from delaystore.message import Position
from delaystore.sql.errors import translated_errors
from delaystore.stores._checks import check_number
from delaystore.stores.abc import Page
from delaystore.stores.operable import (
    EXAMINED,
    STEP,
    Activity,
    Allowance,
    AuditEntry,
    Change,
    Destination,
    DispatcherRecord,
    IngressRecord,
    OperableDelayedMessageStore,
    Operation,
)
from delaystore.stores.sql import setup
from delaystore.stores.sql.operating._bound import Bound
from delaystore.stores.sql.operating._destinations import Destinations
from delaystore.stores.sql.operating._dispatchers import Dispatchers
from delaystore.stores.sql.operating._ingresses import Ingresses
from delaystore.stores.sql.operating._operations import Operations
from delaystore.stores.sql.operating._parking import Parking
from delaystore.stores.sql.operating._search import Search
from delaystore.stores.sql.operating.audit import AuditTrail

log = logging.getLogger("delaystore.stores")

ASKED_AGAIN: Final = 30.0
"""Seconds after which tables of an earlier release are asked again whether they are upgraded."""
TIDIED: Final = 60.0
"""Seconds after which a beat deletes again what is old."""


class OperableSqlStore(OperableDelayedMessageStore):
    """The operable part of SqlDelayedMessageStore."""

    _is_operable = False
    _ask_from = 0.0
    _tidy_from = 0.0

    @abstractmethod
    def _one_call(self) -> AbstractContextManager[Bound]: ...

    @abstractmethod
    def _looking_up(self) -> AbstractContextManager[Bound]: ...

    @property
    @override
    def is_operable(self) -> bool:
        """Asked once where it is so, and each half minute where it is not."""
        if not self._is_operable and time.monotonic() >= self._ask_from:
            with self._one_call() as bound, translated_errors():
                self._is_operable = bound.parts.version.is_from(setup.OPERABLE, bound.connection)
            self._ask_from = time.monotonic() + ASKED_AGAIN
        return self._is_operable

    @override
    def search(
        self,
        wanted: MessageFilter,
        *,
        after: Position | None = None,
        limit: int = 100,
        examine: int = EXAMINED,
    ) -> Page:
        """By the index of next attempts, or by that of what has failed."""
        with self._looking_up() as bound:
            return Search(bound).page(wanted, after, limit, examine)

    @override
    def count_matching(
        self, wanted: MessageFilter, *, after: Position | None = None, examine: int = EXAMINED
    ) -> tuple[int, Position | None]:
        """As `search`, but the database counts."""
        with self._looking_up() as bound:
            return Search(bound).count(wanted, after, examine)

    @override
    def count_between(self, since: datetime, until: datetime, bucket: timedelta) -> Mapping[datetime, int]:
        with self._one_call() as bound:  # of a time with most of what waits, an index is the longer way
            return Search(bound).count_between(since, until, bucket)

    @override
    def count_by_destination(self, most: int = 1_000) -> Mapping[str, int]:
        with self._one_call() as bound:
            return Search(bound).count_by_destination(most)

    @override
    def count_failing(self, at_most: int) -> int:
        with self._looking_up() as bound:
            return Search(bound).count_failing(at_most)

    def first_due_of_failing(self) -> datetime | None:
        """The earliest due time of what has failed before, of the first thousand by next attempt; None: nothing has."""
        with self._looking_up() as bound:
            return Search(bound).first_due_of_failing()

    @override
    def count_parked(self, at_most: int) -> int:
        with self._looking_up() as bound:
            return Search(bound).count_parked(at_most)

    @override
    def begin_operation(self, operation: Operation, *, change: Change | None = None) -> None:
        with self._one_call() as bound:
            Operations(bound).begin(operation, change)

    @override
    def advance_operation(
        self, operation_id: str, examine: int = STEP, *, change: Change | None = None
    ) -> Operation | None:
        with self._looking_up() as bound:
            return Operations(bound).advance(operation_id, examine, change)

    @override
    def end_operation(self, operation_id: str, *, change: Change | None = None) -> Operation | None:
        with self._one_call() as bound:
            return Operations(bound).end(operation_id, change)

    @override
    def operation(self, operation_id: str) -> Operation | None:
        with self._one_call() as bound:
            return Operations(bound).get(operation_id)

    @override
    def operations(self, limit: int = 20) -> Sequence[Operation]:
        with self._one_call() as bound:
            return Operations(bound).last(limit)

    @override
    def destinations(self) -> Sequence[Destination]:
        with self._one_call() as bound:
            return Destinations(bound).all()

    @override
    def pause(self, destination: str, *, by: str, until: datetime | None = None) -> None:
        with self._one_call() as bound:
            Destinations(bound).pause(destination, by, until)

    @override
    def resume(self, destination: str, *, by: str) -> bool:
        """Waits for passes of dispatchers that have just parked messages for it."""
        with self._one_call() as bound:
            return Destinations(bound).resume(destination, by)

    @override
    def limit_rate(self, destination: str, max_rate: float | None, *, by: str) -> None:
        with self._one_call() as bound:
            Destinations(bound).limit(destination, max_rate, by)

    @cached_property
    def _parking(self) -> Parking:
        return Parking(self._looking_up)

    @override
    def park(self, until: datetime, at_most: int = STEP) -> int:
        return self._parking.park(until, at_most)

    @override
    def unpark(self, at_most: int = STEP, ahead: timedelta | None = None) -> int:
        return self._parking.unpark(at_most, ahead)

    @override
    def allowance(self, destination: str, wanted: int) -> Allowance:
        with self._one_call() as bound:
            return Destinations(bound).allowance(destination, wanted)

    @override
    def beat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        with self._one_call() as bound:
            Dispatchers(bound).beat(record, done)
        self._forget_old()

    def _forget_old(self) -> None:
        """Raises nothing: the beat before is written, and whoever heard of a failure would write it again."""
        if time.monotonic() < self._tidy_from:
            return
        self._tidy_from = time.monotonic() + TIDIED
        try:
            with self._one_call() as bound:
                Dispatchers(bound).forget()
                Ingresses(bound).forget()
        except StoreError as error:
            log.debug("what dispatchers and ingresses told long ago is not deleted: %s; it is tried again", error)

    @override
    def retire(self, dispatcher_id: str) -> None:
        with self._one_call() as bound:
            Dispatchers(bound).retire(dispatcher_id)

    @override
    def dispatchers(self) -> Sequence[DispatcherRecord]:
        with self._one_call() as bound:
            return Dispatchers(bound).alive()

    @override
    def beat_of_ingress(self, record: IngressRecord) -> None:
        with self._one_call() as bound:
            Ingresses(bound).beat(record)
        self._forget_old()

    @override
    def retire_ingress(self, ingress_id: str) -> None:
        with self._one_call() as bound:
            Ingresses(bound).retire(ingress_id)

    @override
    def ingresses(self) -> Sequence[IngressRecord]:
        with self._one_call() as bound:
            return Ingresses(bound).all()

    @override
    def activity(self, since: datetime) -> Sequence[Activity]:
        with self._one_call() as bound:
            return Dispatchers(bound).activity(since)

    @override
    def changes(self, limit: int = 100, before: datetime | None = None) -> Sequence[AuditEntry]:
        with self._one_call() as bound:
            return AuditTrail(bound).last(limit, before)

    @override
    def forget_before(self, time: datetime, at_most: int = STEP) -> int:
        """In a transaction for each table, the oldest rows first."""
        check_number(at_most, "at_most")
        with self._one_call() as bound:
            forgotten = AuditTrail(bound).forget(time, at_most)
        with self._one_call() as bound:
            return forgotten + Operations(bound).forget(time, at_most)
