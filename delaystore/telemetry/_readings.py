"""What the gauges tell of a store, asked at most once in some seconds."""

from collections.abc import Mapping
from typing import Final

from delaystore.calls import Question, Repeated
from delaystore.dispatcher.status_check import counts_of
from delaystore.errors import DelaystoreError
from delaystore.stores.abc import DelayedMessageStore
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

Reading = Mapping[str, float]
"""Values by the names of metrics; one that cannot be told is missing."""
_SILENT: Final[Reading] = {STORE_AVAILABLE.name: 0.0}


class StoreReadings:
    """Asks one store, one question at a time; threads may share it. `error_queue`: looked at through `transport`."""

    def __init__(self, store: DelayedMessageStore, transport: Transport | None, error_queue: str) -> None:
        self._store = store
        self._transport = transport
        self._error_queue = error_queue
        self._asked = Repeated("asking for what metrics tell", self._ask)
        self._last = _SILENT

    def latest(self) -> Reading:
        """The last answer, asked for anew where it is older than EVERY; waits LONGEST_WAIT at most, raises nothing."""
        question = self._asked.question(LONGEST_ANSWER, fresh=EVERY)
        if question.answered_within(LONGEST_WAIT - question.age):
            self._last = _answer_to(question)
        elif question.too_late:
            self._last = _SILENT
        return self._last

    def _ask(self) -> Reading:
        store = self._store
        overdue = store.status().overdue
        found = {STORE_AVAILABLE.name: 1.0, OLDEST_OVERDUE.name: 0.0 if overdue is None else overdue.total_seconds()}
        counts = counts_of(store, self._error_queue)
        depth = self._depth() if counts.error_queue_depth is None else counts.error_queue_depth
        told = {
            BACKLOG: None if counts.backlog is None else counts.backlog.messages,
            FAILING: counts.failing,
            PARKED: counts.parked_now,
            PAUSED: None if counts.paused is None else len(counts.paused),
            DISPATCHERS: counts.dispatchers,
            ERROR_QUEUE_DEPTH: depth,
        }
        return found | {metric.name: value for metric, value in told.items() if value is not None}

    def _depth(self) -> int | None:
        """How many messages are in the error queue, asked where no dispatcher has told it; None: that is unknown."""
        try:
            return None if self._transport is None else self._transport.depth(self._error_queue)
        except DelaystoreError:
            return None


def _answer_to(question: Question[Reading]) -> Reading:
    try:
        return question.answer()
    except Exception:
        return _SILENT
