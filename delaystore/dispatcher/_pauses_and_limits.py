"""Paused and limited destinations: which messages of a batch may be sent now."""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from delaystore.breakers import StoreCalls
from delaystore.calls import Question
from delaystore.dispatcher._batch import PassBatch
from delaystore.errors import StorePermissionError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import OperableDelayedMessageStore, OperableTransaction
from delaystore.stores.records import Allowance, Destination, number_of_load, postponed_until, retried_at

logger = logging.getLogger("delaystore.dispatcher")
CHECK_EVERY: Final = 5.0
"""Seconds after which a store is asked again whose tables are of an earlier release, or whose rights are missing."""


class OperabilityCheck:
    """Checks whether a store is operable, again and again while it is not. Threads may share it."""

    def __init__(self, store: DelayedMessageStore, store_calls: StoreCalls) -> None:
        self._store = store
        self._store_calls = store_calls
        self._not_before = 0.0
        self._is_logged = False
        self.found: OperableDelayedMessageStore | None = None
        """The store, as far as is known: it is operable; None: it is not, or was not asked yet."""

    def check(self) -> OperableDelayedMessageStore | None:
        """The store if it is operable; checks it unless that is known, or was done a moment ago. Raises its errors."""
        store = self._store
        if self.found is None and isinstance(store, OperableDelayedMessageStore):
            now = time.monotonic()
            if now >= self._not_before:
                self.found = store if self._may_be_operated(store) else None
                self._not_before = now + CHECK_EVERY
        return self.found

    def _may_be_operated(self, store: OperableDelayedMessageStore) -> bool:
        """False also if rights to its tables are missing, as after an upgrade: messages are dispatched anyway."""
        try:
            with self._store_calls.call("asking whether destinations can be paused"):
                if not store.is_operable:
                    return False
                store.destinations()
        except StorePermissionError as error:
            if not self._is_logged:
                logger.warning("pauses and rate limits are ignored and no status is reported to the store: %s", error)
            self._is_logged = True
            return False
        return True


ANSWER_TIMEOUT: Final = 1.0
"""Seconds that a pass waits for an allowance: as long as its messages are claimed."""

ALONE: Final = 60.0
"""Seconds after a missing answer in which passes request no allowances."""


class AllowanceRequests:
    """Requests from the store how many messages may go to limited destinations. Threads may share it.

    A pass asks while its own transaction is open, beside it: on another connection, from another thread, since the
    pool may have none left, and the pass would wait for itself. In SQLite others can write meanwhile, because a
    pass writes only after it has sent. Where there is no answer in time, the pass leaves such messages as they are, and
    their allowances are requested before the next fetch, on the connection that is free then.

    The store thus grants each message that goes, to any dispatcher that asks: over all dispatchers `max_rate` in
    each second, once those of one second have gone at once. A granted message that does not arrive, or that another
    dispatcher has taken meanwhile, counts as gone: then it is less.
    """

    def __init__(self, operability: OperabilityCheck, store_calls: StoreCalls) -> None:
        self._operability = operability
        self._store_calls = store_calls
        self._lock = threading.Lock()
        self._alone_until = 0.0
        self._wanted: Counter[str] = Counter()
        """Messages seen, by destination, for which the store is to be asked before the next fetch."""
        self._answers: dict[str, Allowance] = {}
        """Allowances that were requested before the fetch."""

    def request_ahead(self) -> None:
        """Request the allowances that a pass got no answer about; call it before a fetch. Raises the store's errors."""
        if not self._wanted:
            return
        with self._lock:
            wanted, self._wanted = self._wanted, Counter()
        store = self._operability.check()
        if store is None:
            return
        for destination, count in wanted.items():
            with self._store_calls.call("asking what a limited destination may get"):
                allowance = store.allowance(destination, count)
            with self._lock:
                self._answers[destination] = allowance

    def allowances(self, wanted: Mapping[str, int]) -> Mapping[str, Allowance]:
        """The allowance of each destination for its number of messages; ask again later for destinations that are
        missing.
        """
        with self._lock:
            found = {name: self._answers.pop(name) for name in wanted if name in self._answers}
        missing = {name: count for name, count in wanted.items() if name not in found}
        store = self._operability.found
        if missing and store is not None:
            found |= self._request_in_thread(store, missing)
        with self._lock:
            self._wanted.update({name: count for name, count in missing.items() if name not in found})
        return found

    def want(self, destination: str, count: int) -> None:
        """Have more asked for before the next fetch."""
        with self._lock:
            self._wanted[destination] += count

    def _request_in_thread(
        self, store: OperableDelayedMessageStore, wanted: Mapping[str, int]
    ) -> Mapping[str, Allowance]:
        if time.monotonic() < self._alone_until:
            return {}

        def request() -> Mapping[str, Allowance]:
            return {name: store.allowance(name, count) for name, count in wanted.items()}

        try:
            question = Question("asking what limited destinations may get", request, ANSWER_TIMEOUT)
        except RuntimeError:  # no thread can be started
            return {}
        try:
            return question.answer()
        except StoreUnavailableError as error:
            self._alone_until = time.monotonic() + ALONE
            logger.warning(
                "no answer to what limited destinations may get: %s; asked before the fetches from now on. Is the "
                "engine's pool large enough, with a connection more than the dispatcher's two?",
                error,
            )
            return {}


READ_EVERY: Final = 0.5
"""Seconds after which passes apply a new pause."""


class KnownDestinations:
    """Reads from the store which destinations are paused or limited, at most every 0.5 s. Threads may share it.

    `on_change` is called when something has changed.
    """

    def __init__(self, operability: OperabilityCheck, store_calls: StoreCalls) -> None:
        self._operability = operability
        self._store_calls = store_calls
        self._not_before = 0.0
        self.all: Sequence[Destination] = ()
        self.postponed_until: datetime | None = None
        """Until when limits may have postponed messages; None: it is not known yet, and not noted."""
        self.on_change: Callable[[], object] = lambda: None

    def read(self) -> None:
        """Read them, unless that was done a moment ago; call it before a fetch. Raises the store's errors."""
        if time.monotonic() < self._not_before:
            return
        store = self._operability.check()
        if store is None:
            return
        begun = time.monotonic()
        with self._store_calls.call("asking which destinations are paused"):
            found = store.destinations_and_loads()
        self._not_before = begun + READ_EVERY
        changed, self.all = found != self.all, found
        if changed:
            self.on_change()

    def forget(self) -> None:
        """Read them before the next fetch: they have changed."""
        self._not_before = 0.0

    def postponed(self, until: datetime) -> None:
        """Note that a limit has postponed a message until then."""
        if self.postponed_until is not None:
            self.postponed_until = max(self.postponed_until, until)

    def paused(self, now: datetime) -> Collection[str]:
        """The names of destinations that are paused at `now`, on the store's clock."""
        return {each.name for each in self.all if is_paused(each, now)}

    @property
    def limited(self) -> Collection[str]:
        """The names of destinations that have a limit."""
        return {each.name for each in self.all if each.max_rate is not None}


def is_paused(destination: Destination, now: datetime) -> bool:
    """Whether it is paused at `now`: a pause ends at its time, even if that is not noted in the store yet."""
    return destination.paused and (destination.paused_until is None or destination.paused_until > now)


class PauseAndLimitFilter:
    """Decides which messages of a pass may be sent to paused and limited destinations. Threads may share it.

    `shown_at`: the next attempt with which a message is fetched at a time.
    """

    def __init__(
        self, destinations: KnownDestinations, limits: AllowanceRequests, shown_at: Callable[[datetime], datetime]
    ) -> None:
        self._destinations = destinations
        self._limits = limits
        self._shown_at = shown_at

    def sendable(
        self, tx: DelayedMessageStore, batch: PassBatch, messages: Sequence[DelayedMessage]
    ) -> Sequence[DelayedMessage]:
        """Return the messages that may be sent, and note the others in `batch`. Writes nothing.

        A limited destination gets nothing ahead of its time: messages in its native delay would arrive all at once.
        """
        if batch.operable is None or not self._destinations.all:
            return messages
        now = tx.now()
        paused, limited = self._destinations.paused(now), self._destinations.limited
        of_paused_loads = _of_paused_loads(batch.operable, messages, paused)
        going: list[DelayedMessage] = []
        waiting: defaultdict[str, list[DelayedMessage]] = defaultdict(list)
        for message in messages:
            if message.destination in paused or message.message_id in of_paused_loads:
                batch.paused.append(message)
            elif message.destination not in limited:
                going.append(message)
            elif message.due_time > now:
                batch.postponed.append((message, retried_at(self._shown_at(message.due_time))))
            else:
                waiting[message.destination].append(message)
        return _in_order(messages, [*going, *self._granted(batch, waiting)]) if waiting else going

    def park_and_postpone(self, batch: PassBatch) -> None:
        """Write the notes of `sendable`; messages that the store does not park stay as they are."""
        tx = batch.operable
        if tx is None:
            return
        if batch.paused:
            self._park(tx, batch)
        if batch.postponed:
            batch.shown_later = tx.postpone(self._as_limited_now(tx, batch))

    def _as_limited_now(self, tx: OperableTransaction, batch: PassBatch) -> Sequence[tuple[DelayedMessage, datetime]]:
        """The postponed messages; at their due times if the limits of now postpone no message for that long.

        The next pass asks for those again.
        """
        promised = tx.promised({message.destination for message, _ in batch.postponed})
        latest = {name: postponed_until(self._shown_at(last)) for name, last in promised.items()}
        now = tx.now()
        found = []
        for message, at in batch.postponed:
            last = latest.get(message.destination)
            stays = last is not None and (at <= last or message.due_time > now)
            found.append((message, at if stays else message.due_time))
        batch.again |= any(at == message.due_time for message, at in found)
        return found

    def _park(self, tx: OperableTransaction, batch: PassBatch) -> None:
        parked = frozenset(tx.park_claimed(batch.paused))
        batch.parked = [message for message in batch.paused if message.message_id in parked]
        if len(parked) < len(batch.paused):  # resumed meanwhile: the next pass forwards them
            self._destinations.forget()
            batch.again = True

    def _granted(self, batch: PassBatch, waiting: dict[str, list[DelayedMessage]]) -> Sequence[DelayedMessage]:
        """Return the messages that are granted; note when the others are shown again, or that they stay as they are."""
        allowances = self._limits.allowances(Counter({name: len(messages) for name, messages in waiting.items()}))
        granted: list[DelayedMessage] = []
        for destination, messages in waiting.items():
            allowance = allowances.get(destination)
            if allowance is None:
                batch.again = True
            else:
                granted += self._share_out(batch, destination, messages, allowance)
        return granted

    def _share_out(
        self, batch: PassBatch, destination: str, messages: Sequence[DelayedMessage], allowance: Allowance
    ) -> Sequence[DelayedMessage]:
        rest = messages[allowance.granted :]
        times = [postponed_until(self._shown_at(time)) for time in allowance.later]
        batch.postponed += zip(rest, times, strict=False)
        if rest and times:
            self._destinations.postponed(allowance.later[-1])
        if len(rest) > len(times):  # more than were asked for before the fetch
            self._limits.want(destination, len(rest) - len(times))
            batch.again = True
        return messages[: allowance.granted]


def _of_paused_loads(
    tx: OperableTransaction, messages: Sequence[DelayedMessage], paused: Collection[str]
) -> Collection[str]:
    """The ids of those messages whose load is paused; asks the store only if a load is."""
    numbers = {number for name in paused if (number := number_of_load(name)) is not None}
    if not numbers:
        return ()
    return set(tx.loads_of([message.message_id for message in messages], numbers))


def _in_order(messages: Sequence[DelayedMessage], some: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
    ids = {message.message_id for message in some}
    return [message for message in messages if message.message_id in ids]
