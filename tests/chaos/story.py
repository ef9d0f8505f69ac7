"""What happened to one message."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.history import Event
from tests.chaos.program import ERROR, MISSING
from tests.chaos.timeline import GRACE, PrimaryClocks

DONE = "done"


@dataclass(frozen=True, slots=True)
class Span:
    """A due time that was in force until `until`, the answer that ended it (None: it still is).

    `ended_by`: cancel or reschedule.
    """

    due: float
    until: Event | None = None
    ended_by: str = ""


@dataclass
class Story:
    """The events of one message, each kind in the order of time."""

    key: str
    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Event]:
        """Its events of these kinds."""
        return [event for event in self.events if event.kind in kinds]

    @property
    def attempts(self) -> list[Event]:
        return self.of("attempted")

    @property
    def deliveries(self) -> list[Event]:
        return self.of("delivered")

    @property
    def waiting(self) -> bool:
        """Whether it is still in the store at the end."""
        return bool(self.of("waiting"))

    @property
    def acknowledged(self) -> Event | None:
        """The event from which on it must not be lost; None: nobody was told that it is stored.

        A repeat that finds it in the store is told so by DuplicateMessageError, if nobody else has used the id. An
        order that was committed has its message.
        """
        told = self.of("acknowledged", "order")
        if not told and self.attempts and self.attempts[0]["fresh"] and len(self.attempts) > 1:
            told = self.of("duplicate")
        return told[0] if told else None

    @property
    def destination(self) -> str:
        """The queue where it belongs."""
        wanted: str = self.attempts[0]["destination"]
        return ERROR if wanted == MISSING else wanted

    @property
    def enlisted(self) -> bool:
        """Whether it was sent with an order, which cannot be stored twice."""
        return any(event["how"] == "enlisted" for event in self.attempts)

    @property
    def taken_in(self) -> bool:
        """Whether an ingress has tried to store it."""
        return bool(self.of("storing"))

    @property
    def stored_too_soon(self) -> bool:
        """Whether an ingress has stored it again, though it has an id, and the first one was not due yet."""
        due = min(event["due"] for event in self.attempts)
        again = self.of("stored")[1:]
        return self.attempts[0]["id"] is not None and any(event.wall + GRACE < due for event in again)

    @property
    def stored_at_most(self) -> int:
        """How often its attempts may have stored it: one that failed may have, and the message be gone by the next.

        What an ingress stores it notes itself.
        """
        if self.enlisted:
            return 1
        if self.taken_in:
            return len(self.of("storing")) - len(self.of("not_stored"))
        return max(1, len(self.attempts) - len(self.of("duplicate")))

    @property
    def copies(self) -> list[Event]:
        """The deliveries of different copies: a broker that gives a copy to a consumer again says so."""
        seen: set[str] = set()
        copies = []
        for event in self.deliveries:
            copy = event["copy"]
            again = event["redelivered"] if copy is None else f"{event['queue']} {copy}" in seen
            if not again:
                copies.append(event)
            if copy is not None:
                seen.add(f"{event['queue']} {copy}")
        return copies or self.deliveries[:1]

    @property
    def perhaps_cancelled(self) -> bool:
        """Whether a cancel was done, or may have been."""
        done = [event for event in self.of("cancel_answered") if event["outcome"] == DONE]
        return bool(done) or len(self.of("cancel_asked")) > len(self.of("cancel_answered"))

    @property
    def cancelled(self) -> Event | None:
        """The answer that it is cancelled."""
        return next((event for event in self.of("cancel_answered") if event["outcome"] == DONE), None)

    def spans(self, by: float) -> list[Span]:
        """The due times that it had, or may have had, before `by`."""
        spans = [Span(event["due"]) for event in self.attempts if event.time <= by]
        asked: Event | None = None
        for event in self.events:
            if event.time > by:
                break
            if event.kind == "reschedule_asked":
                asked = event
                spans.append(Span(event["due"]))  # unless the answer says no
            elif event.kind == "reschedule_answered" and asked is not None:
                new = spans.pop(max(n for n, span in enumerate(spans) if span.due == asked["due"]))
                if event["outcome"] == DONE:
                    spans = [*_ended(spans, event, "reschedule"), new]
            elif event.kind == "cancel_answered" and event["outcome"] == DONE:
                spans = _ended(spans, event, "cancel")
        return spans

    def due_by(self, delivery: Event, clocks: PrimaryClocks) -> list[Span]:
        """Of its due times, those that a primary's clock had shown by the delivery, while they were in force."""
        return [
            span
            for span in self.spans(delivery.time)
            if clocks.reached(span.due, delivery if span.until is None else span.until)
        ]


def stories(events: Sequence[Event]) -> dict[str, Story]:
    """All messages of a history, by key."""
    found: dict[str, Story] = {}
    by_key: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["key"] is not None:
            by_key[event["key"]].append(event)
    for key, own in by_key.items():
        found[key] = Story(key, own)
    return found


def _ended(spans: Sequence[Span], answer: Event, ended_by: str) -> list[Span]:
    """Those in force, ended by the answer; the others as they are."""
    return [span if span.until is not None else Span(span.due, answer, ended_by) for span in spans]
