"""One way out of the store: sending, or handing over. Destinations that take nothing hold up no others."""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from delaystore.dispatcher._set_aside import Part, SetAside
from delaystore.message import DelayedMessage
from delaystore.transports.abc import Outcome, OutcomeKind

PROBE_SECONDS: Final = 0.3
"""Seconds that probes wait for their answers; those that come later are heard, too."""

Give = Callable[[Sequence[DelayedMessage], float], Sequence[Outcome]]
"""Gives messages to the transport, with seconds to wait; returns their outcomes."""


@dataclass(frozen=True, slots=True)
class Given:
    """The outcomes of giving some messages to the transport, in their order."""

    outcomes: Sequence[Outcome]
    kinds: Set[OutcomeKind]
    """The kinds of outcomes that the transport returned: of what was held back it knows nothing."""
    sent_at: float
    """By time.monotonic."""
    probes: Mapping[str, float] = field(default_factory=dict)
    """By message_id of what was sent to try a destination that was set aside: seconds until that is tried again."""


class Outlet:
    """Gives messages out, but holds back those for destinations that are set aside. Threads may share it.

    `what`: how the log names a destination. `timeout`: seconds that messages wait for their answers.
    """

    def __init__(self, what: str, timeout: float) -> None:
        self._monotonic = time.monotonic
        self.set_aside: Final = SetAside(what, self._monotonic)
        self._timeout = timeout

    def give(self, messages: Sequence[DelayedMessage], give: Give) -> Given:
        """Give `messages` out; what is held back is UNREADY."""
        now = self._monotonic()
        if not self.set_aside:
            outcomes, kinds = self._give(messages, give, self._timeout, now)
            return Given(outcomes, kinds, now)
        parts = self.set_aside.parts(messages)
        send, sent_kinds = self._give(_of(Part.SEND, messages, parts), give, self._timeout, now)
        probing = _of(Part.PROBE, messages, parts)
        probe, probe_kinds = self._give(probing, give, min(PROBE_SECONDS, self._timeout), now)
        given = {Part.SEND: iter(send), Part.PROBE: iter(probe)}
        outcomes = [
            self._held(message) if part is Part.HOLD else next(given[part])
            for message, part in zip(messages, parts, strict=True)
        ]
        probes = {message.message_id: self.set_aside.gap(message.destination) for message in probing}
        return Given(outcomes, sent_kinds | probe_kinds, now, probes)

    def _give(
        self, messages: Sequence[DelayedMessage], give: Give, timeout: float, now: float
    ) -> tuple[Sequence[Outcome], set[OutcomeKind]]:
        if not messages:
            return (), set()
        outcomes = give(messages, timeout)
        kinds = {outcome.kind for outcome in outcomes}
        if self.set_aside or OutcomeKind.UNREADY in kinds:
            self.set_aside.note(messages, outcomes, now)
        return outcomes, kinds

    def _held(self, message: DelayedMessage) -> Outcome:
        return Outcome(OutcomeKind.UNREADY, self.set_aside.reason(message.destination))


def _of(wanted: Part, messages: Sequence[DelayedMessage], parts: Sequence[Part]) -> Sequence[DelayedMessage]:
    return [message for message, part in zip(messages, parts, strict=True) if part is wanted]
