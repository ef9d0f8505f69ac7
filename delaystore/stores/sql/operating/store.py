"""What operators need of a SQL store: each call a transaction of its own, or, where much may be changed, a few."""

import logging
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from typing_extensions import override

from delaystore.errors import StoreError
from delaystore.stores.history import StoreWithHistory
from delaystore.stores.operable import STEP, StoreWithLoads
from delaystore.stores.records import Activity, DispatcherRecord, IngressRecord
from delaystore.stores.schedules import StoreWithSchedules
from delaystore.stores.shared import check_number, in_transaction
from delaystore.stores.sql import setup
from delaystore.stores.sql._parts import StoreParts
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.operating._destinations import DestinationQueries, Parking
from delaystore.stores.sql.operating._reports import DispatcherReports, IngressReports
from delaystore.stores.sql.operating._search import BoundParts, SearchQueries
from delaystore.stores.sql.operating.audit import AuditTrail
from delaystore.stores.sql.operating.history import HistoryQueries
from delaystore.stores.sql.operating.loads import LoadChanges, LoadQueries
from delaystore.stores.sql.operating.operations import OperationQueries

log = logging.getLogger("delaystore.stores")

ASKED_AGAIN: Final = 30.0
"""Seconds after which tables of an earlier release are asked again whether they are upgraded."""
CLEAN_UP_EVERY: Final = 60.0
"""Seconds between two heartbeats that also delete old reports, and sum changes of loads up."""


class OperableSqlStore(StoreWithLoads, StoreWithHistory, StoreWithSchedules):
    """The operable part of SqlDelayedMessageStore."""

    _is_operable = False
    _has_schedules = False
    _ask_from = 0.0
    _next_clean_up = 0.0

    @property
    @abstractmethod
    def _parts(self) -> StoreParts: ...

    @abstractmethod
    def _one_call(self) -> AbstractContextManager[BoundParts]: ...

    @abstractmethod
    def _looking_up(self) -> AbstractContextManager[BoundParts]: ...

    @property
    @override
    def is_operable(self) -> bool:
        """Asked once where it is so, and each half minute where it is not."""
        if not self._is_operable and time.monotonic() >= self._ask_from:
            with self._one_call() as bound, translated_errors():
                self._is_operable = bound.parts.version.is_from(setup.OPERABLE, bound.connection)
            self._ask_from = time.monotonic() + ASKED_AGAIN
        return self._is_operable

    # a search by filter goes by an index; a count over a time with most of the waiting messages is quicker without
    search = in_transaction(SearchQueries.page, of=SearchQueries, opened_by="_looking_up")
    count_matching = in_transaction(SearchQueries.count, of=SearchQueries, opened_by="_looking_up")
    count_matching_by_due_time = in_transaction(
        SearchQueries.count_by_due_time, of=SearchQueries, opened_by="_looking_up"
    )
    count_between = in_transaction(SearchQueries.count_between, of=SearchQueries, opened_by="_one_call")
    count_between_by_destination = in_transaction(
        SearchQueries.count_between_by_destination, of=SearchQueries, opened_by="_one_call"
    )
    count_by_destination = in_transaction(SearchQueries.count_by_destination, of=SearchQueries, opened_by="_one_call")
    count_failing = in_transaction(SearchQueries.count_failing, of=SearchQueries, opened_by="_looking_up")
    first_due_of_failing = in_transaction(SearchQueries.first_due_of_failing, of=SearchQueries, opened_by="_looking_up")
    count_parked = in_transaction(SearchQueries.count_parked, of=SearchQueries, opened_by="_looking_up")
    begin_operation = in_transaction(OperationQueries.begin, of=OperationQueries, opened_by="_one_call")
    advance_operation = in_transaction(OperationQueries.advance, of=OperationQueries, opened_by="_looking_up")
    end_operation = in_transaction(OperationQueries.end, of=OperationQueries, opened_by="_one_call")
    operation = in_transaction(OperationQueries.get, of=OperationQueries, opened_by="_one_call")
    operations = in_transaction(OperationQueries.last, of=OperationQueries, opened_by="_one_call")
    destinations = in_transaction(DestinationQueries.all, of=DestinationQueries, opened_by="_one_call")
    destinations_and_loads = in_transaction(DestinationQueries.with_loads, of=DestinationQueries, opened_by="_one_call")
    pause = in_transaction(DestinationQueries.pause, of=DestinationQueries, opened_by="_one_call")
    resume = in_transaction(DestinationQueries.resume, of=DestinationQueries, opened_by="_one_call")
    limit_rate = in_transaction(DestinationQueries.limit, of=DestinationQueries, opened_by="_one_call")
    allowance = in_transaction(DestinationQueries.allowance, of=DestinationQueries, opened_by="_one_call")
    retire = in_transaction(DispatcherReports.retire, of=DispatcherReports, opened_by="_one_call")
    dispatchers = in_transaction(DispatcherReports.alive, of=DispatcherReports, opened_by="_one_call")
    activity = in_transaction(DispatcherReports.activity, of=DispatcherReports, opened_by="_one_call")
    retire_ingress = in_transaction(IngressReports.retire, of=IngressReports, opened_by="_one_call")
    ingresses = in_transaction(IngressReports.all, of=IngressReports, opened_by="_one_call")
    loads = in_transaction(LoadQueries.all, of=LoadQueries, opened_by="_one_call")
    load = in_transaction(LoadQueries.get, of=LoadQueries, opened_by="_one_call")
    paused_loads = in_transaction(LoadQueries.paused, of=LoadQueries, opened_by="_one_call")
    pause_load = in_transaction(LoadQueries.pause, of=LoadQueries, opened_by="_one_call")
    resume_load = in_transaction(LoadQueries.resume, of=LoadQueries, opened_by="_one_call")
    history_status = in_transaction(HistoryQueries.history_status, of=HistoryQueries, opened_by="_one_call")
    history = in_transaction(HistoryQueries.history, of=HistoryQueries, opened_by="_looking_up")
    forget_history = in_transaction(HistoryQueries.forget_history, of=HistoryQueries, opened_by="_one_call")
    changes = in_transaction(AuditTrail.last, of=AuditTrail, opened_by="_one_call")
    changes_of = in_transaction(AuditTrail.changes_of, of=AuditTrail, opened_by="_looking_up")

    @override
    def keep_history(self, kept: timedelta | None) -> None:
        with self._one_call() as bound:
            HistoryQueries(bound).keep_history(kept)
        self.partition_history()

    @property
    @override
    def makes_entries(self) -> bool:
        return not self._parts.history.is_refused

    @property
    @override
    def has_schedules(self) -> bool:
        if not self._has_schedules:
            with self._one_call() as bound, translated_errors():
                self._has_schedules = bound.parts.version.is_from(setup.SCHEDULED, bound.connection)
        return self._has_schedules

    def partition_history(self) -> None:
        """Make the next partitions of the history, and drop those of entries that were kept long enough."""
        with self._one_call() as bound:
            HistoryQueries(bound).partition()

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
    def heartbeat(self, record: DispatcherRecord, done: Sequence[Activity] = ()) -> None:
        with self._one_call() as bound:
            DispatcherReports(bound).heartbeat(record, done)
        self._forget_old()

    def _forget_old(self) -> None:
        """Delete old reports. Raises nothing: the heartbeat is written, and its caller would write it again on an
        error.
        """
        if time.monotonic() < self._next_clean_up:
            return
        self._next_clean_up = time.monotonic() + CLEAN_UP_EVERY
        try:
            with self._one_call() as bound:
                DispatcherReports(bound).forget()
                IngressReports(bound).forget()
            with self._one_call() as bound:
                LoadChanges(bound).fold()
        except StoreError as error:
            log.debug("cannot delete old reports of dispatchers and ingresses: %s; the store tries again", error)

    @override
    def heartbeat_of_ingress(self, record: IngressRecord) -> None:
        with self._one_call() as bound:
            IngressReports(bound).heartbeat(record)
        self._forget_old()

    @override
    def forget_before(self, time: datetime, at_most: int = STEP) -> int:
        """In a transaction for each table, the oldest rows first."""
        check_number(at_most, "at_most")
        with self._one_call() as bound:
            forgotten = AuditTrail(bound).forget(time, at_most)
        with self._one_call() as bound:
            return forgotten + OperationQueries(bound).forget(time, at_most)
