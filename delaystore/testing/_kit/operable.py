"""What the tests of operable stores have in common."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.message import DelayedMessage, Position
from delaystore.stores.operable import OperableDelayedMessageStore, OperableTransaction
from delaystore.testing._kit.messages import FAR

MOST_STEPS = 1_000
"""More than any test needs: a step that is made again and again shall end it."""
HOUR = timedelta(hours=1)
ME = "jürgen@desk-4"


@contextmanager
def block_of(store: OperableDelayedMessageStore) -> Iterator[OperableTransaction]:
    """A block of `transaction()`, as an OperableTransaction."""
    with store.transaction() as block:
        assert isinstance(block, OperableTransaction), (
            "transaction() of an operable store yields an OperableTransaction"
        )
        yield block


@contextmanager
def claims_of(store: OperableDelayedMessageStore) -> Iterator[tuple[OperableTransaction, list[DelayedMessage]]]:
    """A block, and the messages that it has claimed: all that are free, in batches if the store has any.

    What a block has locked, it may be shown again.
    """
    with block_of(store) as block:
        messages: dict[str, DelayedMessage] = {}
        while fresh := [each for each in block.fetch_due(FAR, 1000) if each.message_id not in messages]:
            messages |= {each.message_id: each for each in fresh}
        yield block, list(messages.values())


def search_all(
    store: OperableDelayedMessageStore, wanted: MessageFilter = EVERYTHING, *, limit: int = 100, examine: int = 1000
) -> Sequence[DelayedMessage]:
    """What all pages of a search have, each key through its text."""
    found: list[DelayedMessage] = []
    after: Position | None = None
    while True:
        page = store.search(wanted, after=after, limit=limit, examine=examine)
        assert len(page.messages) <= limit
        found += page.messages
        if page.next_key is None:
            return found
        assert after is None or page.next_key > after, "a page leads further than the one before"
        after = Position.parse(str(page.next_key))


def repeated(step: Callable[[], int]) -> int:
    """The sum of what `step` returns, until that is 0."""
    total = 0
    for _ in range(MOST_STEPS):
        some = step()
        if not some:
            return total
        total += some
    raise AssertionError(f"there was still something to do after {MOST_STEPS} steps")
