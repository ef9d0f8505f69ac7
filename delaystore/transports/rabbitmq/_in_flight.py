"""The in-flight batch of a channel: what is published, and what the broker answered for each message."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from delaystore.address import Address
from delaystore.transports.abc import LateAnswer, Outcome, OutcomeKind
from delaystore.transports.rabbitmq.publication import Publishable

_ANSWERED: Final = -1


@dataclass(frozen=True, slots=True)
class Closure:
    """Why an in-flight batch ended early.

    `by_message`: a message closed the channel or the connection; else it is an outage.
    `own`: the batch's own channel was closed, so one of its messages is the cause; a connection is shared.
    `code`: the broker's reply code; 0: it sent none.
    """

    reason: str
    code: int = 0
    by_message: bool = False
    own: bool = False


class InFlightBatch:
    """Publications on their way through one channel, which carries nothing else meanwhile.

    The owner thread alone changes it; the sender reads it once `news` is set, or after it has left.
    `outcomes`: one for each of `publications`; None: no answer.
    """

    def __init__(self, publications: Sequence[Publishable]) -> None:
        self.publications = publications
        """Empty once its sender has left: what is on the wire needs no bodies here."""
        self.outcomes: list[Outcome | None] = [None] * len(publications)
        self.doubtful: set[int] = set()
        """Positions of publications that look alike, some of which came back; which ones is unknown."""
        self.closure: Closure | None = None
        self.news = threading.Event()
        """Set when the sender need wait no longer: it has ended, or what is left of it is silent."""
        self.ended = False
        self.left = False
        """Whether its sender waits no more; what is on the wire goes on."""
        self.next = 0
        """The first position that is not yet on the wire."""
        self.total = len(publications)
        """How many are to be sent."""
        self.unsettled_bytes = 0
        self.reaches = 0
        """How many bytes of the connection there are up to its last one on the wire."""
        self.began_at = self.heard_at = time.monotonic()
        """When it was made; when the broker last answered for any of it, or at first the same."""
        self.answerable_at = self.began_at
        """When it was last known not to have reached a broker that reads; at first when it was made."""
        self._settled = 0
        self._sent: list[int] = []
        """Positions in the order of their delivery tags."""
        self._sizes: list[int] = []
        self._lowest = 0
        """Every tag below this one is settled."""
        self._returned: dict[int, Outcome] = {}
        self._positions: dict[tuple[str | None, str, str], list[int]] | None = None

    @property
    def unsettled(self) -> int:
        """How many publications on the wire have no answer yet."""
        return self.next - self._settled

    @property
    def complete(self) -> bool:
        """Whether every publication has its outcome."""
        return self._settled == self.total

    @property
    def partly_answered(self) -> bool:
        """Whether some of it has answers, and some has none."""
        return 0 < self._settled < self.total

    def sent(self, size: int) -> None:
        """Count the publication at `next` as on the wire, with the next delivery tag."""
        self._sent.append(self.next)
        self._sizes.append(size)
        self.unsettled_bytes += size
        self.next += 1

    def skipped(self, outcome: Outcome) -> None:
        """Settle the publication at `next` without sending it."""
        self.outcomes[self.next] = outcome
        self._settled += 1
        self.next += 1

    def answered(self, index: int, outcome: Outcome, *, multiple: bool) -> None:
        """Settle the publication with the `index`-th delivery tag (from 0); `multiple`: and all before it."""
        self.heard_at = time.monotonic()
        for each in range(self._lowest if multiple else index, index + 1):
            size = self._sizes[each]
            if size == _ANSWERED:
                continue
            self._sizes[each] = _ANSWERED
            self.unsettled_bytes -= size
            self._settled += 1
            position = self._sent[each]
            if position not in self.doubtful:
                self.outcomes[position] = self._returned.get(position, outcome)
        if multiple:
            self._lowest = max(self._lowest, index + 1)

    def returned(self, message_id: str | None, address: Address, reason: str) -> None:
        """Note that a publication came back; its confirm follows and settles it.

        A return carries no delivery tag. Where several publications look alike, none is blamed: they are doubtful,
        and to be sent again one at a time.
        """
        alike = [
            position
            for position in self._by_looks().get((message_id, *address), [])
            if position < self.next and self.outcomes[position] is None
        ]
        if len(alike) == 1:
            self._returned[alike[0]] = Outcome(OutcomeKind.UNROUTABLE, reason)
        else:
            self.doubtful.update(alike)

    def leave(self) -> None:
        """Its sender waits no more: what is on the wire goes on, and the rest is not sent."""
        self._by_looks()
        self.total = self.next
        self.publications = ()
        self.left = True

    def end(self, closure: Closure | None = None) -> None:
        """Set `news`; `closure` says why there may be publications without an outcome."""
        if not self.ended:
            self.closure = closure
            self.ended = True
            self.news.set()

    def _by_looks(self) -> dict[tuple[str | None, str, str], list[int]]:
        """Positions by what a return tells of a publication."""
        if self._positions is None:
            self._positions = {}
            for position, publication in enumerate(self.publications):
                key = (publication.message_id, *publication.address)
                self._positions.setdefault(key, []).append(position)
        return self._positions


class LateConfirm(LateAnswer):
    """What becomes of one publication of a batch whose sender has left."""

    def __init__(self, batch: InFlightBatch, position: int) -> None:
        self._batch = batch
        self._position = position

    @property
    @override
    def arrived(self) -> bool | None:
        ended = self._batch.ended  # read first: an answer may come in between
        outcome = self._batch.outcomes[self._position]
        if outcome is not None:
            return outcome.kind is OutcomeKind.DELIVERED
        return False if ended else None
