"""What the gauges tell of a store, asked at most once in some seconds."""

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Final

from delaystore.calls import Question
from delaystore.errors import DelaystoreError
from delaystore.stores.abc import DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore
from delaystore.telemetry._names import (
    BACKLOG,
    DISPATCHERS,
    ERROR_QUEUE_DEPTH,
    FAILING,
    OLDEST_OVERDUE,
    PARKED,
    PAUSED,
    STORE_AVAILABLE,
)
from delaystore.transports.abc import Transport

EVERY: Final = 10.0
"""Seconds for which an answer is good."""
LONGEST_ANSWER: Final = 5.0
"""Seconds after which a question is given up."""
LONGEST_WAIT: Final = 1.0
"""Seconds for which an export waits for an answer; then it gets the former one."""
COUNTED: Final = 10_000
"""Failing and parked messages are counted up to so many."""

Reading = Mapping[str, float]
"""Values by the names of metrics; one that cannot be told is missing."""
_SILENT: Final[Reading] = {STORE_AVAILABLE.name: 0.0}


class StoreReadings:
    """Asks one store, one question at a time; threads may share it. `error_queue`: looked at through `transport`."""

    def __init__(self, store: DelayedMessageStore, transport: Transport | None, error_queue: str) -> None:
        self._store = store
        self._transport = transport
        self._error_queue = error_queue
        self._lock = threading.Lock()
        self._question: Question[Reading] | None = None
        self._asked = 0.0
        self._last = _SILENT

    def latest(self) -> Reading:
        """The last answer, asked for anew where it is older than EVERY; waits LONGEST_WAIT at most, raises nothing."""
        with self._lock:
            now = monotonic()
            if self._question is None or (not self._question.open and now - self._asked >= EVERY):
                self._asked = now
                self._question = Question("asking for what metrics tell", self._ask, LONGEST_ANSWER)
            question, until = self._question, self._asked + LONGEST_WAIT
        if question.answered_within(until - monotonic()):
            self._last = _answer_to(question)
        elif question.too_late:
            self._last = _SILENT
        return self._last

    def _ask(self) -> Reading:
        store = self._store
        overdue = store.status().overdue
        found = {STORE_AVAILABLE.name: 1.0, OLDEST_OVERDUE.name: 0.0 if overdue is None else overdue.total_seconds()}
        if isinstance(store, ManagedDelayedMessageStore):
            found[BACKLOG.name] = store.estimate_count().messages
        if isinstance(store, OperableDelayedMessageStore) and store.is_operable:
            found |= _of_operable(store)
        if ERROR_QUEUE_DEPTH.name not in found and (depth := self._depth()) is not None:
            found[ERROR_QUEUE_DEPTH.name] = depth
        return found

    def _depth(self) -> int | None:
        """How many messages are in the error queue, asked where no dispatcher has told it; None: that is unknown."""
        try:
            return None if self._transport is None else self._transport.depth(self._error_queue)
        except DelaystoreError:
            return None


def _of_operable(store: OperableDelayedMessageStore) -> dict[str, float]:
    dispatchers = store.dispatchers()
    depths = [each.error_queue_depth for each in dispatchers if each.error_queue_depth is not None]
    found: dict[str, float] = {
        FAILING.name: store.count_failing(COUNTED),
        PARKED.name: store.count_parked(COUNTED),
        PAUSED.name: sum(each.paused for each in store.destinations()),
        DISPATCHERS.name: len(dispatchers),
    }
    return {**found, ERROR_QUEUE_DEPTH.name: max(depths)} if depths else found


def _answer_to(question: Question[Reading]) -> Reading:
    try:
        return question.answer()
    except Exception:
        return _SILENT
