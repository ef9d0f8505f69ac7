"""Which claimed messages go now, and which are withheld: parked or postponed."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

from delaystore.dispatcher._batch import Batch
from delaystore.dispatcher._destinations import KnownDestinations
from delaystore.dispatcher._limits import Limits
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.stores.operable import Allowance, OperableTransaction, postponed_until, retried_at


class Admission:
    """Decides for a pass by what the store says of destinations. Threads may share it.

    `shown_at`: the next attempt with which a message is fetched at a time.
    """

    def __init__(
        self, destinations: KnownDestinations, limits: Limits, shown_at: Callable[[datetime], datetime]
    ) -> None:
        self._destinations = destinations
        self._limits = limits
        self._shown_at = shown_at

    def admit(
        self, tx: DelayedMessageStore, batch: Batch, messages: Sequence[DelayedMessage]
    ) -> Sequence[DelayedMessage]:
        """Those of `messages` that may go; notes the others in `batch`. Writes nothing.

        A limited destination gets nothing ahead of its time: what its native delay holds would come all at once.
        """
        if batch.operable is None or not self._destinations.all:
            return messages
        now = tx.now()
        paused, limited = self._destinations.paused(now), self._destinations.limited
        going: list[DelayedMessage] = []
        waiting: defaultdict[str, list[DelayedMessage]] = defaultdict(list)
        for message in messages:
            if message.destination in paused:
                batch.paused.append(message)
            elif message.destination not in limited:
                going.append(message)
            elif message.due_time > now:
                batch.postponed.append((message, retried_at(self._shown_at(message.due_time))))
            else:
                waiting[message.destination].append(message)
        return _in_order(messages, [*going, *self._granted(batch, waiting)]) if waiting else going

    def withhold(self, batch: Batch) -> None:
        """Write it; what the store does not park stays as it is. Raises what the store raises."""
        tx = batch.operable
        if tx is None:
            return
        if batch.paused:
            self._park(tx, batch)
        if batch.postponed:
            batch.shown_later = tx.postpone(self._as_limited_now(tx, batch))

    def _as_limited_now(self, tx: OperableTransaction, batch: Batch) -> Sequence[tuple[DelayedMessage, datetime]]:
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

    def _park(self, tx: OperableTransaction, batch: Batch) -> None:
        parked = frozenset(tx.park_claimed(batch.paused))
        batch.parked = [message for message in batch.paused if message.message_id in parked]
        if len(parked) < len(batch.paused):  # resumed meanwhile: the next pass forwards them
            self._destinations.forget()
            batch.again = True

    def _granted(self, batch: Batch, waiting: dict[str, list[DelayedMessage]]) -> Sequence[DelayedMessage]:
        """Those of `waiting` that are granted; notes when the others are shown again, or that they stay as they are."""
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
        self, batch: Batch, destination: str, messages: Sequence[DelayedMessage], allowance: Allowance
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


def _in_order(messages: Sequence[DelayedMessage], some: Sequence[DelayedMessage]) -> Sequence[DelayedMessage]:
    ids = {message.message_id for message in some}
    return [message for message in messages if message.message_id in ids]
