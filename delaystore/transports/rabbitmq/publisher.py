"""Sending a batch: how answers are handled, the meaning of a nack and a return, and the message that closes its
channel.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from delaystore.errors import TransportUnavailableError
from delaystore.text import DEFAULT_EXCHANGE, Address, counted
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind
from delaystore.transports.rabbitmq.blocking import BlockingConnections
from delaystore.transports.rabbitmq.channels import NACKED, AbandonedBatch, BatchPendingConfirm, Closure, InFlightBatch
from delaystore.transports.rabbitmq.owner import ConnectionOwner
from delaystore.transports.rabbitmq.parameters import Broker
from delaystore.transports.rabbitmq.pika_errors import NOT_FOUND
from delaystore.transports.rabbitmq.publication import Publishable
from delaystore.transports.rabbitmq.queues import QueueAvailability, QueueLook, look_at

LOOK_SECONDS: Final = 2.0
"""Seconds that the looks after one send may take."""
_UNKNOWN: Final = QueueLook(QueueAvailability.UNKNOWN, reason="it could not be looked at in time")


def look_at_all(connections: BlockingConnections, addresses: Iterable[Address]) -> Mapping[Address, QueueLook]:
    """The availability of each queue among `addresses`, within about LOOK_SECONDS; exchanges are left out."""
    deadline = time.monotonic() + LOOK_SECONDS
    looks: dict[Address, QueueLook] = {}
    for address in addresses:
        if address.exchange != DEFAULT_EXCHANGE:
            continue
        if time.monotonic() > deadline:
            looks[address] = _UNKNOWN
            continue
        try:
            looks[address] = look_at(connections, address.routing_key)
        except TransportUnavailableError as error:
            looks[address] = QueueLook(QueueAvailability.UNKNOWN, reason=str(error))
    return looks


def of_return(returned: Outcome, look: QueueLook | None) -> Outcome:
    """The outcome of a message that was returned. `look`: at its queue; None: it was for an exchange.

    A queue that exists has no route to it while its node is down. For an exchange it is unknown which queues are bound
    to it: no route is no route.
    """
    if look is None:
        return replace(returned, reason=f"no queue is bound to the exchange for it; {returned.reason}")
    if look.availability is QueueAvailability.MISSING:
        how = "create it with `delaystore setup --queue NAME`"
        return replace(returned, reason=f"there is no such queue; {how}; {returned.reason}")
    if look.availability is QueueAvailability.THERE:
        return Outcome(OutcomeKind.UNAVAILABLE, f"{returned.reason}, although the queue exists")
    return Outcome(OutcomeKind.UNAVAILABLE, f"{returned.reason}; {look.reason}")


def may_refuse(look: QueueLook) -> bool:
    """Whether a queue that has nacked may be full: it answers, and holds messages. Without a leader it shows none."""
    return look.availability is QueueAvailability.THERE and look.ready > 0


def of_nack(nacked: Outcome, look: QueueLook | None) -> Outcome:
    """The outcome of a nack by a queue that is not known to refuse."""
    if look is None:
        return nacked
    if look.availability is QueueAvailability.THERE:
        return Outcome(nacked.kind, f"{nacked.reason}; the queue shows no messages, so it may have lost its leader")
    return Outcome(nacked.kind, f"{nacked.reason}; {look.reason}")


def of_second_nack(look: QueueLook) -> Outcome:
    """The outcome of the nack that follows such a look."""
    return Outcome(
        OutcomeKind.REFUSED,
        f"nacked by the broker, and again after a look at the queue, which holds "
        f"{counted(look.ready, 'message')}: it is full and rejects",
    )


_ACCESS_REFUSED: Final = 403
_LOSSES_ALONE: Final = 3
"""A message that was in flight alone this often when the connection was lost counts as the cause."""
Look = Callable[[Iterable[Address]], Mapping[Address, QueueLook]]
"""Looks at the queues among some addresses."""


def no_look(_addresses: Iterable[Address]) -> Mapping[Address, QueueLook]:
    """For senders that send a nacked message again, for any reason of the nack."""
    return {}


class PublishedBatch:
    """One batch on its way.

    All of it is published at once. Where the broker closes the channel (or connection) because of a message, the
    confirms of the others are lost with it: unconfirmed messages are sent again in halves, suspects apart, until
    the culprit is alone. Messages that were accepted but not yet confirmed arrive twice; the halves keep their
    number small.

    A message without an answer in time stays in flight in the living connection. `look`: at the queues that have
    nacked or returned something.
    """

    def __init__(
        self,
        batch: Sequence[Publishable | Outcome],
        timeout: float,
        owner: Callable[[], ConnectionOwner],
        quarantine: threading.Lock,
        look: Look = no_look,
    ) -> None:
        self._outcomes = [one if isinstance(one, Outcome) else None for one in batch]
        self._publications = {at: one for at, one in enumerate(batch) if not isinstance(one, Outcome)}
        self._silence = f"no answer from the broker within {timeout:g} s"
        self._deadline = time.monotonic() + timeout
        self._owner = owner
        self._quarantine = quarantine
        self._look = look
        self._doubted: list[int] = []
        """Positions of nacked or returned messages."""
        self._nacked: dict[int, QueueLook] = {}
        """Positions that are sent again, after such a look at the queue that nacked them."""
        self._losses_alone: dict[int, int] = {}
        self._waiting: deque[list[int]] = deque()

    def run(self) -> list[Outcome]:
        """Send, and return one outcome for each item; items that are outcomes already stay as they are."""
        if self._publications:
            self._waiting.append(list(self._publications))
        reason = self._send_all()
        nacked = self._judge()
        if nacked:
            self._waiting.append(nacked)
            self._send_all()
            self._judge()  # what has come back this time
        unconfirmed = Outcome(OutcomeKind.UNCONFIRMED, reason)
        return [outcome or unconfirmed for outcome in self._outcomes]

    def _send_all(self) -> str:
        """Send until nothing waits; returns why it stopped before that, if it did."""
        quarantined = False
        try:
            while self._waiting:
                owner = self._owner()
                obstacle = owner.wait_ready(self._deadline)
                if obstacle is not None:
                    return obstacle
                if self._remaining() == 0:
                    return self._silence
                positions = self._waiting.popleft()
                in_flight = InFlightBatch([self._publications[position] for position in positions])
                # From here on the owner thread writes the outcomes. They are read once the batch has ended, or was
                # left; those that come after that are found by BatchPendingConfirm.
                try:
                    owner.publish(in_flight)
                    in_flight.news.wait(self._remaining())
                    abandoned = None if in_flight.ended else owner.leave(in_flight)
                except BaseException:
                    owner.abandon(in_flight)  # otherwise it would keep its channel, and bodies, for an answer
                    raise
                rest = self._record(in_flight, positions)
                closure = in_flight.closure
                if closure is not None and not closure.by_message:
                    return closure.reason
                if closure is not None and not closure.own and not quarantined:
                    # one sender at a time searches for the message that closes the shared connection
                    quarantined = self._quarantine.acquire(timeout=self._remaining())
                if closure is None and abandoned is not None:
                    self._leave_behind(abandoned, positions, rest)
                else:
                    self._try_again(rest, closure)
            return ""
        finally:
            if quarantined:
                self._quarantine.release()

    def _record(self, in_flight: InFlightBatch, positions: list[int]) -> list[int]:
        """Take over the outcomes of `in_flight`; returns the positions without one."""
        rest = []
        for position, outcome in zip(positions, in_flight.outcomes, strict=True):
            if outcome is DELIVERED:
                self._outcomes[position] = outcome
            elif outcome is None:
                rest.append(position)
            elif outcome is NACKED and position in self._nacked:
                self._outcomes[position] = of_second_nack(self._nacked[position])
            else:
                self._outcomes[position] = outcome
                if outcome is NACKED or outcome.kind is OutcomeKind.UNROUTABLE:
                    self._doubted.append(position)
        return rest

    def _leave_behind(self, abandoned: AbandonedBatch, positions: list[int], rest: list[int]) -> None:
        """Settle messages in flight; unsent messages wait on, unless their destination is one of the silent.

        The owner thread may still send messages that it has not reached.
        """
        kind, reason = _of_silence(abandoned)
        indexes = {position: index for index, position in enumerate(positions)}
        sent = [position for position in rest if not abandoned.seen or indexes[position] < abandoned.batch.next]
        for position in sent:
            # The caller keeps this and asks later. Without it the message would be sent again while the first copy is
            # still on its way, and arrive twice.
            late = BatchPendingConfirm(abandoned.batch, indexes[position])
            self._outcomes[position] = Outcome(kind, reason, late)
        if kind is OutcomeKind.UNAVAILABLE:
            silent = {self._publications[position].address for position in sent}
            for position in rest:
                if self._publications[position].address in silent:
                    self._outcomes[position] = self._outcomes[position] or Outcome(kind, reason)
        unsent = [position for position in rest if self._outcomes[position] is None]
        if unsent:
            self._waiting.appendleft(unsent)

    def _judge(self) -> list[int]:
        """Find out what nacks and returns mean; returns the positions that were nacked by a queue that may be full."""
        doubted, self._doubted = self._doubted, []
        if not doubted:
            return []
        looks = self._look(dict.fromkeys(self._publications[position].address for position in doubted))
        for position in doubted:
            outcome, look = self._outcomes[position], looks.get(self._publications[position].address)
            assert outcome is not None
            if outcome.kind is OutcomeKind.UNROUTABLE:
                self._outcomes[position] = of_return(outcome, look)
            elif look is not None and may_refuse(look):
                self._nacked[position] = look
            else:
                self._outcomes[position] = of_nack(outcome, look)
        return list(self._nacked)

    def _try_again(self, rest: list[int], closure: Closure | None) -> None:
        if closure is None:
            self._waiting.extendleft([position] for position in reversed(rest))
        elif len(rest) == 1 and self._is_to_blame(rest[0], closure):
            self._refuse(rest[0], closure)
        else:
            self._waiting.extendleft(reversed(self._split(rest)))

    def _is_to_blame(self, position: int, closure: Closure) -> bool:
        """Whether the message sent alone is the culprit: its channel was closed, or the connection often enough."""
        self._losses_alone[position] = self._losses_alone.get(position, 0) + 1
        return closure.own or self._losses_alone[position] >= _LOSSES_ALONE

    def _refuse(self, position: int, closure: Closure) -> None:
        """Settle the message that was sent alone and is the culprit, and the messages that share its fault."""
        missing = closure.code == NOT_FOUND
        kind = OutcomeKind.UNROUTABLE if missing else OutcomeKind.REFUSED
        outcome = Outcome(kind, f"the broker closed the channel on it: {closure.reason}")
        self._outcomes[position] = outcome
        if closure.code not in (NOT_FOUND, _ACCESS_REFUSED):
            return
        guilty = self._publications[position].address
        for segment in self._waiting:
            for other in segment:
                address = self._publications[other].address
                if address == guilty or (missing and address.exchange == guilty.exchange):
                    self._outcomes[other] = outcome
        pending = ([other for other in segment if self._outcomes[other] is None] for segment in self._waiting)
        self._waiting = deque(segment for segment in pending if segment)

    def _split(self, positions: list[int]) -> list[list[int]]:
        """`positions` in smaller parts: messages that can hardly close a channel, then the suspects in halves."""
        suspects = [position for position in positions if self._may_be_to_blame(position)]
        if not suspects or len(suspects) == len(positions):
            return _halves(positions)
        others = [position for position in positions if not self._may_be_to_blame(position)]
        return [others, *_halves(suspects)]

    def _may_be_to_blame(self, position: int) -> bool:
        """Whether a message may close the channel: by an exchange that may be missing, its expiration or headers."""
        publication = self._publications[position]
        return publication.suspect or publication.address.exchange != DEFAULT_EXCHANGE

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def _of_silence(abandoned: AbandonedBatch) -> tuple[OutcomeKind, str]:
    """The outcome of a message that is in flight without an answer, and why."""
    if abandoned.obstacle is not None:
        return OutcomeKind.UNCONFIRMED, abandoned.obstacle
    if not abandoned.seen:
        return OutcomeKind.UNCONFIRMED, "still to be sent: this machine is busy"
    if abandoned.moving:
        return OutcomeKind.UNCONFIRMED, "still being sent: the network takes it slowly"
    return OutcomeKind.UNAVAILABLE, "no answer, although the broker answers others"


def _halves(positions: list[int]) -> list[list[int]]:
    middle = len(positions) // 2
    return [part for part in (positions[:middle], positions[middle:]) if part]


class BatchPublisher:
    """Publishes batches with confirms, on a connection of its own that opens at the first use. Threads may share it.

    Args:
        broker: Where the messages go.
        look: Looks at the queues that have nacked or returned something.

    """

    def __init__(self, broker: Broker, look: Look = no_look) -> None:
        self._broker = broker
        self._look = look
        self._lock = threading.Lock()
        self._quarantine = threading.Lock()
        self._owner: ConnectionOwner | None = None

    def publish(self, batch: Sequence[Publishable | Outcome], timeout: float) -> Sequence[Outcome]:
        """Publish messages with confirms.

        Args:
            batch: The messages to publish. Outcomes among them are returned as they are.
            timeout: Seconds for all of them.

        Returns:
            One outcome for each, in their order.

        """
        return PublishedBatch(batch, timeout, self.owner, self._quarantine, self._look).run()

    def owner(self) -> ConnectionOwner:
        """The connection's owner. A new one, which connects, where there is none, or its connection was closed."""
        with self._lock:
            if self._owner is None or not self._owner.alive:
                self._owner = ConnectionOwner(self._broker)
            return self._owner

    def close(self) -> None:
        """End the connection; may be called twice."""
        with self._lock:
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    def forget_after_fork(self) -> None:
        """In a forked child: thread and socket are the parent's, and its locks may be taken."""
        self._lock, self._quarantine = threading.Lock(), threading.Lock()
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.forget_after_fork()
