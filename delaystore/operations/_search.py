"""What waits, searched: pages, a preview, all that match."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.operations._access import Access
from delaystore.operations._pauses import CountListener
from delaystore.stores.abc import Page

_CHUNK: Final = 1_000
"""Messages that are in memory together while all that match are read."""
_MAY_MOVE: Final = timedelta(minutes=10)
"""Messages that are due within this time may be tried, and so shown again later, while others are still read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an operation would be about; nothing is changed.

    `count`: the messages that match now; what dispatchers have is among them. `sample`: the first of them. `complete`
    False: counting was ended, and more may match.
    """

    wanted: MessageFilter
    count: int
    sample: Sequence[DelayedMessage]
    complete: bool = True


def search(access: Access, wanted: MessageFilter, after: Position | None, limit: int) -> Page:
    """A page of what matches."""
    store = access.operable()
    with access.call("searching messages"):
        return store.search(wanted, after=after, limit=limit)


def preview(
    access: Access, wanted: MessageFilter, sample: int, at_most: int | None, listener: CountListener | None
) -> Preview:
    """Count what matches, page by page, and show the first of them."""
    store = access.operable()
    found: list[DelayedMessage] = []
    count, after = 0, None
    while True:
        if len(found) < sample:
            page = search(access, wanted, after, sample - len(found))
            found += page.messages
            matched, after = len(page.messages), page.next_key
        else:
            with access.call("counting messages"):
                matched, after = store.count_matching(wanted, after=after)
        count += matched
        if listener is not None:
            listener(count)
        if after is None or (at_most is not None and count >= at_most):
            return Preview(wanted=wanted, count=count, sample=found, complete=after is None)


class Export:
    """All messages that match, a chunk at a time, in the order of positions behind `after`.

    No message comes twice because a dispatcher tried it meanwhile; one that is rescheduled or resumed meanwhile may
    come twice, or not at all.
    """

    def __init__(self, access: Access, wanted: MessageFilter, after: Position | None) -> None:
        self._access = access
        self._wanted = wanted
        self._ended = False
        self._movable: set[str] = set()
        self.after = after
        """Where the next chunk begins; None: at the beginning, or, after the last one, there is none."""

    def next(self) -> Sequence[DelayedMessage] | None:
        """The next chunk, perhaps an empty one; None: that was all."""
        if self._ended:
            return None
        page = search(self._access, self._wanted, self.after, _CHUNK)
        self.after, self._ended = page.next_key, page.next_key is None
        fresh = [message for message in page.messages if message.message_id not in self._movable]
        soon = self._access.store.now() + _MAY_MOVE
        self._movable.update(message.message_id for message in fresh if message.next_attempt <= soon)
        return fresh
