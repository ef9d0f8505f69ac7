"""Observers of dispatching, for metrics and traces."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

from typing_extensions import override

from delaystore.breakers import BreakerChange
from delaystore.dispatcher.health import DispatchReport
from delaystore.message import DelayedMessage

logger = logging.getLogger("delaystore.dispatcher")

Phase = Literal["fetch", "forward", "settle"]
_AnswerT = TypeVar("_AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDurations:
    """How long a pass took, in seconds; 0 for a phase that it did not reach."""

    fetch: float
    """Beginning the transaction and claiming the batch."""
    forward: float
    """Sending, copies to the error queue included, and waiting for the broker's confirms."""
    settle: float
    """Writing the outcomes into the store, and committing."""

    @property
    def total(self) -> float:
        """The whole pass."""
        return self.fetch + self.forward + self.settle


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """The report of one pass. An undone pass did nothing: forwarded messages count when they are removed."""

    began: datetime
    """On the store's clock, UTC; on this computer's if the store did not answer."""
    counts: DispatchReport
    """Messages by outcome; all 0 where nothing was due."""
    by_destination: Mapping[str, DispatchReport]
    """The same by destination, without lost claims, whose destination is unknown."""
    lateness: Sequence[float]
    """Seconds from the due time to the broker's confirm, for each message that was delivered when it was due."""
    durations: PassDurations
    """How long its phases took."""
    error: Exception | None
    """Why the pass was undone; None: it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledMessages:
    """The messages of one pass, by outcome."""

    by_outcome: Mapping[str, Sequence[DelayedMessage]]
    """By the names of `DispatchReport`'s counts; `fetched` has all, `failed` also messages that no error queue
    accepted."""
    reasons: Mapping[str, str]
    """Why some were not delivered, by message_id, for people."""


class Sending:
    """One call of `send` or `send_many`, as an observer follows it; see `DispatchObserver.send_begins`."""

    def stamped(self, message: DelayedMessage) -> DelayedMessage:
        """Change the headers of a message before it is stored. Called for each message.

        Args:
            message: The message, checked.

        Returns:
            The message to store in its place: the same, or one with more headers.

        """
        return message

    def ended(self, error: BaseException | None) -> None:
        """The call is about to end.

        Args:
            error: Its exception; None: it returns. WouldBlockError: it did nothing, and is made again.

        """


class DispatchObserver:
    """Hears about dispatching and sending. Derive from it, and override the methods that you need.

    Its methods are called outside of every transaction, by the threads that dispatch (two at once while there is a
    backlog) and, for the breaker `store`, by threads that send. These threads wait for them, so they should be quick.
    Exceptions are logged, once for each kind of error, and have no effect.

    Example:
        ```python
        class Delivered(DispatchObserver):
            def pass_ended(self, report: PassReport) -> None:
                print(report.counts.delivered, "delivered in", report.durations.total, "s")

        dispatcher = Dispatcher(store, transport, endpoint="sales", observer=Delivered())
        ```

    """

    def pass_ended(self, report: PassReport) -> None:
        """A pass has ended, also one that found nothing due. While the transport cannot send there are none.

        Args:
            report: The pass in numbers.

        """

    def breaker_changed(self, change: BreakerChange) -> None:
        """A circuit breaker has changed its state.

        Args:
            change: Which one, and its states.

        """

    def messages_settled(self, report: PassReport, messages: SettledMessages) -> None:
        """A pass that fetched messages has ended, and was not undone.

        Called before `pass_ended`, and only where it is overridden: other observers cost nothing.

        Args:
            report: The pass in numbers.
            messages: Its messages, by outcome.

        """

    def send_begins(self, message: DelayedMessage | None) -> Sending | None:  # noqa: ARG002 - for overriders
        """A call of `send` or `send_many` begins, also of an enlisted delivery. Called only where it is overridden.

        Args:
            message: The message of `send`, checked; None: the call is `send_many`.

        Returns:
            An object that follows the call; None: it is not followed.

        """
        return None


class GuardedObserver(DispatchObserver):
    """Calls another observer, and logs its exceptions."""

    def __init__(self, observer: DispatchObserver) -> None:
        self._observer: Final = observer
        self._logged: set[tuple[str, type[Exception]]] = set()
        self.hears_of_messages: Final = _overrides(observer, "messages_settled")
        self.hears_of_sending: Final = _overrides(observer, "send_begins")

    @override
    def pass_ended(self, report: PassReport) -> None:
        self.guard("PassReport", self._observer.pass_ended, report)

    @override
    def breaker_changed(self, change: BreakerChange) -> None:
        self.guard("BreakerChange", self._observer.breaker_changed, change)

    @override
    def messages_settled(self, report: PassReport, messages: SettledMessages) -> None:
        self.guard("SettledMessages", self._observer.messages_settled, report, messages)

    @override
    def send_begins(self, message: DelayedMessage | None) -> Sending | None:
        sending = self.guard("Sending", self._observer.send_begins, message)
        return None if sending is None else _GuardedSending(self, sending)

    def guard(self, what: str, call: Callable[..., _AnswerT], *arguments: Any) -> _AnswerT | None:
        """Return the result of `call`. If it raises, log each kind of error once, and return None."""
        try:
            return call(*arguments)
        except Exception as error:
            kind = what, type(error)
            if kind not in self._logged:
                self._logged.add(kind)
                logger.exception("the observer raised an error on a %s; dispatching continues", what)
            return None


class _GuardedSending(Sending):
    def __init__(self, observer: GuardedObserver, sending: Sending) -> None:
        self._guard: Final = observer.guard
        self._sending: Final = sending

    @override
    def stamped(self, message: DelayedMessage) -> DelayedMessage:
        return self._guard("Sending", self._sending.stamped, message) or message

    @override
    def ended(self, error: BaseException | None) -> None:
        self._guard("Sending", self._sending.ended, error)


def guarded(observer: DispatchObserver | None) -> GuardedObserver | None:
    """`observer` within a GuardedObserver; None: there is no observer."""
    return observer if observer is None or isinstance(observer, GuardedObserver) else GuardedObserver(observer)


def _overrides(observer: DispatchObserver, method: str) -> bool:
    return getattr(type(observer), method, None) is not getattr(DispatchObserver, method)


class Stopwatch:
    """Measures the phases of one pass; the first begins at once."""

    def __init__(self) -> None:
        self._seconds: dict[Phase, float] = {"fetch": 0.0, "forward": 0.0, "settle": 0.0}
        self._phase: Phase = "fetch"
        self._began = time.monotonic()

    def begin(self, phase: Phase) -> None:
        """End the phase before, and begin `phase`."""
        now = time.monotonic()
        self._seconds[self._phase] += now - self._began
        self._phase, self._began = phase, now

    def end(self) -> PassDurations:
        """End the last phase; returns how long each took."""
        self.begin(self._phase)
        return PassDurations(**self._seconds)
