"""What the log hears of messages that could not be forwarded: the reason once for all that fail alike."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from delaystore.amounts import counted
from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher._error_queue import Failure
from delaystore.dispatcher._youngest import keep_youngest
from delaystore.message import DelayedMessage

logger = logging.getLogger("delaystore.dispatcher")

QUIET: Final = 60.0
"""Seconds in which failures of the same destination, for the same reason, are told of once."""
MOST_REMEMBERED: Final = 1_000
MOST_NAMED: Final = 20
"""Message_ids that one line names, where the log has the level DEBUG."""


class Alike(NamedTuple):
    """What messages have in common that fail alike."""

    destination: str
    kind: str
    reason: str


def grouped(failures: Iterable[Failure]) -> Mapping[Alike, Sequence[DelayedMessage]]:
    """The messages of `failures` by what they have in common."""
    groups: dict[Alike, list[DelayedMessage]] = {}
    for each in failures:
        groups.setdefault(Alike(each.message.destination, each.kind, each.reason), []).append(each.message)
    return groups


class FailureLog:
    """Tells of the failures of passes. Threads may share it.

    What gives way is told at DEBUG only: WARNING has it when its destination is set aside.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._told: dict[Alike, float] = {}

    def tell(self, batch: Batch) -> None:
        """Tell why messages of a pass were not forwarded."""
        for alike, messages in grouped(batch.refused).items():
            level = logging.WARNING if self._is_news(alike) else logging.DEBUG
            _tell(level, "failed and will be tried again", alike, messages)
        if batch.giving_way and logger.isEnabledFor(logging.DEBUG):
            for alike, messages in grouped(failure for failure, _ in batch.giving_way).items():
                _tell(logging.DEBUG, "give way", alike, messages)

    def _is_news(self, alike: Alike) -> bool:
        now = self._monotonic()
        with self._lock:
            told = self._told.pop(alike, None)
            is_news = told is None or now - told >= QUIET
            self._told[alike] = now if told is None or is_news else told
            keep_youngest(self._told, MOST_REMEMBERED)
        return is_news


def _tell(level: int, what: str, alike: Alike, messages: Sequence[DelayedMessage]) -> None:
    named = MOST_NAMED if logger.isEnabledFor(logging.DEBUG) else 1
    ids = ", ".join(repr(message.message_id) for message in messages[:named])
    more = ", ..." if len(messages) > named else ""
    logger.log(
        level,
        "%s to %r %s: %s: %s; %s%s",
        counted(len(messages), "message"),
        alike.destination,
        what,
        alike.kind,
        alike.reason,
        ids,
        more,
    )
