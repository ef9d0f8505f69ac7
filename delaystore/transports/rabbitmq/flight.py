"""Messages on their way through one channel, and what came back for each."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from delaystore.errors import UnsupportedMessageError
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.address import Address, parse_address
from delaystore.transports.rabbitmq.frames import content_header

_ANSWERED: Final = -1


class Publishable(Protocol):
    """What can be published, and where to."""

    @property
    def address(self) -> Address:
        """The exchange and routing key."""
        ...

    @property
    def message_id(self) -> str | None:
        """The property of that name, by which a message that comes back is known; None: it has none."""
        ...

    @property
    def body(self) -> bytes:
        """The content."""
        ...

    @property
    def mandatory(self) -> bool:
        """Whether the broker shall say that nothing takes it."""
        ...

    @property
    def suspect(self) -> bool:
        """Whether properties or headers make it likelier than others to be what the broker closes a channel for."""
        ...

    def content_header(self, channel_number: int) -> bytes:
        """The frame that holds the properties; raises UnsupportedMessageError if they cannot be encoded."""
        ...


@dataclass(frozen=True, slots=True)
class Publication:
    """A message, and the address it is published to."""

    message: DelayedMessage
    address: Address
    mandatory: bool = True
    """Whether the broker shall say that nothing takes it."""

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self.message.message_id

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self.message.body

    @property
    def suspect(self) -> bool:
        """Whether it has an expiration, or carbon copies, which may be malformed."""
        return "expiration" in self.message.properties or "CC" in self.message.headers

    def content_header(self, channel_number: int) -> bytes:
        """The frame that holds the message's properties; raises UnsupportedMessageError."""
        return content_header(channel_number, self.message)


def publication_of(message: DelayedMessage) -> Publication | Outcome:
    """`message` on its way to its destination; UNROUTABLE where that is no address."""
    try:
        return Publication(message, parse_address(message.destination))
    except UnsupportedMessageError as error:
        return Outcome(OutcomeKind.UNROUTABLE, str(error))


@dataclass(frozen=True, slots=True)
class Closure:
    """Why a flight ended early.

    `by_message`: a message closed the channel or the connection; else it is an outage.
    `own`: it was the flight's own channel, and so a message of this flight; a connection is shared.
    """

    code: int
    reason: str
    by_message: bool
    own: bool


class Flight:
    """Publications through one channel that nobody else uses meanwhile.

    The owner thread alone changes it, until `done` is set; then the sender reads it.
    `outcomes` runs parallel to `publications`; None: no answer.
    """

    def __init__(self, publications: Sequence[Publishable]) -> None:
        self.publications = publications
        self.outcomes: list[Outcome | None] = [None] * len(publications)
        self.doubtful: set[int] = set()
        """Positions of which one came back, nobody can say which."""
        self.closure: Closure | None = None
        self.done = threading.Event()
        self.next = 0
        """The first position that is not yet on the wire."""
        self.unsettled_bytes = 0
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
        return self._settled == len(self.publications)

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
        """Settle the publication with the `index`-th delivery tag (from 0), or all up to it."""
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

        A return carries no delivery tag. Where several publications in flight look alike, none is blamed: they
        are doubtful, and to be sent again one at a time.
        """
        if self._positions is None:
            self._positions = {}
            for position, publication in enumerate(self.publications):
                key = (publication.message_id, *publication.address)
                self._positions.setdefault(key, []).append(position)
        alike = [
            position
            for position in self._positions.get((message_id, *address), [])
            if position < self.next and self.outcomes[position] is None
        ]
        if len(alike) == 1:
            self._returned[alike[0]] = Outcome(OutcomeKind.UNROUTABLE, reason)
        else:
            self.doubtful.update(alike)

    def end(self, closure: Closure | None = None) -> None:
        """Let the sender go on; `closure` says why there may be publications without an outcome."""
        if not self.done.is_set():
            self.closure = closure
            self.done.set()
