"""What becomes of a batch of arrivals: read, stored, forwarded or rejected."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher.breakers import RepeatedFailuresOverTimeCircuitBreaker
from delaystore.errors import InvalidMessageError, StoreError
from delaystore.ingress._direct import Direct
from delaystore.ingress._entry import Entry, Fate
from delaystore.ingress._rejecting import Rejecting
from delaystore.ingress._storing import Storing
from delaystore.ingress.reading.reader import ArrivalReader
from delaystore.ingress.reading.rejection import RejectedArrivalError
from delaystore.ingress.reading.saga_cleared import SagaCleared

_PATIENCE: Final = 10.0
"""Seconds for which a batch is tried again before its messages go back to their queue, where others may take them."""
_SLOW: Final = 0.5
"""Seconds for an answer; delays may be longer by them. After a slower one the store is asked once more."""

logger = logging.getLogger("delaystore.ingress")


class Intake:
    """Takes batches in, one at a time. `stopping`: nothing is tried again once it is set.

    Where is a message if the process dies? In its queue, until it is acknowledged; from the store's commit, or the
    confirm of its copy, on also there.
    """

    def __init__(
        self,
        delivery: DelayedDelivery,
        reader: ArrivalReader,
        storing: Storing,
        direct: Direct,
        rejecting: Rejecting,
        breaker: RepeatedFailuresOverTimeCircuitBreaker,
        stopping: threading.Event,
    ) -> None:
        self._delivery = delivery
        self._reader = reader
        self._storing = storing
        self._direct = direct
        self._rejecting = rejecting
        self._breaker = breaker
        self._stopping = stopping

    def take_in(self, entries: Sequence[Entry]) -> str | None:
        """Give each entry a fate. Why some have none, as the rejected queue does not take them; None: all have one.

        In an outage of the store it tries again for a while, and then raises StoreError; what has a fate keeps it.
        """
        gives_up = time.monotonic() + _PATIENCE
        while True:
            try:
                self._take_in(entries)
                self._breaker.success()
                break
            except StoreError as error:
                pause = self._breaker.failure(error)
                if time.monotonic() + pause > gives_up or self._stopping.wait(pause):
                    raise
        rejected = [entry for entry in entries if entry.fate is None]
        return self._rejecting.reject(rejected) if rejected else None

    def _take_in(self, entries: Sequence[Entry]) -> None:
        self._read(entry for entry in entries if entry.meaning is None and entry.objection is None)
        for is_message, group in groupby(_open(entries), lambda entry: not isinstance(entry.meaning, SagaCleared)):
            if is_message:
                self._keep(list(group))
            else:
                for entry in group:
                    self._obey(entry)

    def _read(self, entries: Iterable[Entry]) -> None:
        """Find out what each says. Delays count from when it came."""
        now, reading_at = self._clock()
        came_at, came = reading_at, now
        for entry in entries:
            if entry.at != came_at:
                came_at, came = entry.at, now - timedelta(seconds=reading_at - entry.at)
            try:
                entry.meaning = self._reader.read(entry.arrival, came)
            except (RejectedArrivalError, InvalidMessageError) as error:
                entry.objection = str(error)
            except Exception as error:  # whatever it is, the others go on
                logger.exception("a message of %r could not be read", entry.arrival.queue)
                entry.objection = f"it could not be read: {error!r}"

    def _clock(self) -> tuple[datetime, float]:
        """The store's time, and when it was asked, by time.monotonic: never after the store read its clock.

        Otherwise delays would begin before their messages came, by as long as the answer took.
        """
        asked_at, now = time.monotonic(), self._now
        if time.monotonic() - asked_at > _SLOW:
            asked_at, now = time.monotonic(), self._now
        return now, asked_at

    def _keep(self, entries: Sequence[Entry]) -> None:
        self._direct.forward(entries, self._now)
        self._storing.store([entry for entry in entries if entry.fate is None])

    @property
    def _now(self) -> datetime:
        return self._delivery.operations.now()

    def _obey(self, entry: Entry) -> None:
        """Cancel what the saga's timeouts are, as far as they wait by now."""
        assert isinstance(entry.meaning, SagaCleared)
        for message_id in self._delivery.message_ids(entry.meaning.id_prefix):
            self._delivery.cancel(message_id)
        entry.fate = Fate.OBEYED


def _open(entries: Iterable[Entry]) -> Iterator[Entry]:
    return (entry for entry in entries if entry.fate is None and entry.objection is None)
