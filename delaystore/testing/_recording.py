"""A transport for users' unit tests: it records what it is given and answers as told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition

from typing_extensions import override

from delaystore.address import named_queue
from delaystore.errors import TransportSetupError
from delaystore.message import DelayedMessage
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import DELIVERED, Outcome, OutcomeKind, ReceivedMessage, Transport

Answer = Outcome | Callable[[DelayedMessage], Outcome]


class RecordingTransport(Transport):
    """Delivers everything, but for the destinations in `outcomes`, and keeps a record.

    `outcomes`: by destination, an Outcome or a function of the message that returns one; may be changed at any time.
    UNREADY pretends that the destination takes nothing at present, though the broker is there.
    `unavailable_reason`: why nothing can be sent (a pretended outage); None: it can.
    """

    def __init__(self, outcomes: Mapping[str, Answer] | None = None, *, unavailable_reason: str | None = None) -> None:
        self.outcomes: dict[str, Answer] = dict(outcomes or {})
        self.unavailable_reason = unavailable_reason
        self._changed = Condition()
        self._attempts: list[tuple[DelayedMessage, Outcome]] = []
        self._queues: dict[str, list[ReceivedMessage]] = {}

    @property
    def attempts(self) -> Sequence[tuple[DelayedMessage, Outcome]]:
        """Everything it was given to send, with the outcome, in that order."""
        with self._changed:
            return list(self._attempts)

    @property
    def sent(self) -> Sequence[DelayedMessage]:
        """What was delivered, in that order."""
        return [message for message, outcome in self.attempts if outcome.kind is OutcomeKind.DELIVERED]

    @property
    def declared(self) -> frozenset[str]:
        """The queues that were declared."""
        with self._changed:
            return frozenset(self._queues)

    def wait_for_sent(self, count: int, timeout: float = 30) -> Sequence[DelayedMessage]:
        """`sent`, once it holds at least `count` messages; TimeoutError when it does not within `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.sent) >= count, timeout)
            sent = self.sent
        if len(sent) < count:
            raise TimeoutError(f"{len(sent)} messages were sent within {timeout:g} s, not {count}")
        return sent

    @override
    def send(
        self,
        messages: Sequence[DelayedMessage],
        transaction: DelayedMessageStore | None,
        timeout: float,
    ) -> Sequence[Outcome]:
        """Record each message with its outcome by `outcomes`; in an outage, UNSETTLED for all."""
        outcomes = [self._outcome_of(message) for message in messages]
        with self._changed:
            for message, outcome in zip(messages, outcomes, strict=True):
                self._attempts.append((message, outcome))
                if outcome.kind is OutcomeKind.DELIVERED:
                    self._queues.setdefault(message.destination, []).append(_received(message))
            self._changed.notify_all()
        return outcomes

    @override
    def declare(self, queue: str) -> None:
        """Note `queue` in `declared`; other queues can be sent to as well."""
        named_queue(queue)
        with self._changed:
            self._queues.setdefault(queue, [])

    @override
    @contextmanager
    def receive(self, queue: str, limit: int = 1, timeout: float = 0) -> Iterator[Sequence[ReceivedMessage]]:
        """What was delivered there; raises TransportSetupError for a queue neither declared nor delivered to."""
        with self._changed:
            if queue not in self._queues:
                raise TransportSetupError(f"there is no queue {queue!r}; declare it first")
            waiting = self._queues[queue]
            self._changed.wait_for(lambda: waiting, timeout)
            taken = waiting[:limit]
            del waiting[:limit]
        try:
            yield taken
        except BaseException:
            with self._changed:
                waiting[:0] = taken
                self._changed.notify_all()
            raise

    @override
    def unavailable(self) -> str | None:
        return self.unavailable_reason

    def _outcome_of(self, message: DelayedMessage) -> Outcome:
        if self.unavailable_reason is not None:
            return Outcome(OutcomeKind.UNSETTLED, self.unavailable_reason)
        answer = self.outcomes.get(message.destination, DELIVERED)
        return answer if isinstance(answer, Outcome) else answer(message)


def _received(message: DelayedMessage) -> ReceivedMessage:
    return ReceivedMessage(
        message_id=message.message_id, body=message.body, headers=message.headers, properties=message.properties
    )
