"""Publishing answers, until it is known what became of each."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from delaystore.control._copies import answer_copy, request_copy, wants_answer
from delaystore.control._senders import sender_of
from delaystore.control._standing import Standing
from delaystore.control.protocol import Answer
from delaystore.transports.abc import Outcome, OutcomeKind
from delaystore.transports.rabbitmq.copies import Copy, CopyPublisher
from delaystore.transports.rabbitmq.raw import Delivery

_TIMEOUT: Final = 5.0
"""Seconds for the confirms of one batch."""
_PATIENCE: Final = 5.0
"""Seconds for which a queue that takes nothing at present is tried."""
_PAUSE: Final = 1.0
"""Seconds before an answer is published again."""

logger = logging.getLogger("delaystore.control")


@dataclass(slots=True)
class Reply:
    """What is owed for a request. `copy`: what is published; None: nothing, or nothing more."""

    request: Delivery
    answer: Answer
    copy: Copy | None
    is_rejected: bool = False
    """Whether the copy is one of the request, for the rejected queue."""
    since: float = field(default_factory=time.monotonic)
    next_try: float = 0.0


class Replies:
    """Answers that are on their way. Used by one thread. `rejected`: the queue for errors that nobody is told of."""

    def __init__(self, publisher: CopyPublisher, rejected: str, standing: Standing) -> None:
        self._publisher = publisher
        self._rejected = rejected
        self._standing = standing
        self._open: list[Reply] = []
        standing.replies = None
        self.is_rejected_missing = False
        """Whether the broker has no queue any more for rejected requests."""

    @property
    def due_in(self) -> float | None:
        """Seconds until an answer is to be published; None: nothing is owed."""
        first = min((reply.next_try for reply in self._open), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    @property
    def size(self) -> int:
        """Bytes of the answers that are owed."""
        return sum(len(reply.answer.body) for reply in self._open)

    def add(self, request: Delivery, answer: Answer) -> None:
        """Owe `answer` to whoever sent `request`."""
        self._standing.requests += 1
        reply = Reply(request, answer, answer_copy(request, answer))
        if reply.copy is None:
            self._not_told(reply, "it has no reply_to that can be read")
        self._open.append(reply)

    def publish(self) -> Sequence[int]:
        """Publish what is owed; returns the tags of the requests that can be acknowledged."""
        now = time.monotonic()
        due = [reply for reply in self._open if reply.next_try <= now]
        copies = [reply.copy for reply in due if reply.copy is not None]
        outcomes = iter(self._publisher.publish(copies, _TIMEOUT) if copies else ())
        for reply in due:
            if reply.copy is not None:
                self._settle(reply, next(outcomes))
        done = [reply.request.tag for reply in self._open if reply.copy is None]
        self._open = [reply for reply in self._open if reply.copy is not None]
        if not self._open:
            self._standing.replies = None
        return done

    def _settle(self, reply: Reply, outcome: Outcome) -> None:
        if outcome.kind is OutcomeKind.DELIVERED:
            reply.copy = None
            if reply.is_rejected:
                self._standing.rejected += 1
            else:
                self._standing.answered += 1
        elif reply.is_rejected or outcome.kind is OutcomeKind.UNSETTLED or self._may_recover(reply, outcome):
            self.is_rejected_missing |= reply.is_rejected and outcome.kind is OutcomeKind.UNROUTABLE
            reply.next_try = time.monotonic() + _PAUSE
            what = f"the queue {self._rejected!r} takes no requests" if reply.is_rejected else "answers are not taken"
            self._standing.replies = f"{what}: {outcome.reason}"
        else:
            self._not_told(reply, outcome.reason)

    def _may_recover(self, reply: Reply, outcome: Outcome) -> bool:
        return outcome.kind is OutcomeKind.UNREADY and time.monotonic() - reply.since < _PATIENCE

    def _not_told(self, reply: Reply, reason: str) -> None:
        """Nobody hears of the answer: an error is kept with its request, what was done is done."""
        problem, reply.copy = reply.answer.problem, None
        if problem is not None:
            logger.warning("a request (%s) is rejected: %s", sender_of(reply.request.properties), problem)
            reply.copy, reply.is_rejected, reply.next_try = (
                request_copy(reply.request, problem, self._rejected),
                True,
                0.0,
            )
        elif wants_answer(reply.request.properties):
            self._standing.unanswered += 1
            logger.info("a request (%s) is done, and not answered: %s", sender_of(reply.request.properties), reason)
