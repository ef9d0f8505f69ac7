"""Judges a history: a pure function.

The sets are those of Jepsen's queue tests (https://github.com/rabbitmq/jepsen, `total-queue`): attempted, acknowledged,
delivered, lost, unexpected, duplicated, recovered; and those of messages that wait for a time, and can be cancelled.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from delaystore.settings import TransactionMode
from tests.chaos.findings import Findings
from tests.chaos.history import LAST, Event, in_order
from tests.chaos.program import AT_ONCE, ERROR, MISSING
from tests.chaos.stalls import stalls
from tests.chaos.story import DONE, Span, Story, stories
from tests.chaos.timeline import Faults, FaultTime, PrimaryClocks

TAIL = 30.0
"""Seconds before an asynchronous promotion in which what was written may be gone, and what was removed, be back."""
LONG_AGO = 60.0
"""Seconds after its first copy from which on another copy is called revived, if there was a promotion."""
WORKERS = 2
"""Threads of a dispatcher that have a batch under way."""


def check(events: Sequence[Event]) -> Findings:
    """The findings of one run."""
    return Checker(in_order(events)).check()


class Checker:
    """Goes through the messages of one history."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        run = next((event for event in events if event.kind == "run"), None)
        self._exactly_once = run is not None and run["mode"] == TransactionMode.TRANSACTION_SCOPE
        self._asynchronous = run is not None and bool(run["asynchronous"])
        self._at_risk = (run["dispatchers"] if run is not None else 1) * WORKERS * AT_ONCE
        self._ended = any(event.kind == LAST for event in events)
        self._faults, self._clocks = Faults(events), PrimaryClocks(events)
        self._near_faults: Counter[FaultTime] = Counter()
        self._found = Findings()

    def check(self) -> Findings:
        found, told = self._found, stories(self._events)
        for story in told.values():
            self._check_story(story)
        self._check_amounts()
        for event in self._events:
            if event.kind == "process_died" and not event["expected"]:
                found.violate("crashed", event["name"], f"ended with exit code {event['code']}", [event])
            elif event.kind == "traceback":
                found.violate("crashed", event["name"], f"a traceback in its log:\n{event['text']}", [event])
        found.stalls = defaultdict(found.stalls.default_factory, stalls(told.values(), self._faults, self._clocks))
        return found

    def _check_story(self, story: Story) -> None:
        found = self._found
        if not story.attempts:
            if story.deliveries:
                found.violate("unexpected", story.key, "delivered, never attempted", story.events)
            return
        self._count(story)
        self._check_lost(story)
        self._check_stored_again(story)
        self._check_copies(story)
        self._check_order(story)
        for delivery in story.deliveries:
            self._check_place(story, delivery)
            self._check_time(story, delivery)
        if story.attempts[0]["fresh"] and story.of("duplicate")[:1] and len(story.attempts) == 1:
            found.violate("refused", story.key, str(story.of("duplicate")[0]["error"]), story.events)

    def _count(self, story: Story) -> None:
        acknowledged, delivered = story.acknowledged is not None, bool(story.deliveries)
        self._found.counts.update(
            {
                "attempted": 1,
                "acknowledged": acknowledged,
                "delivered": delivered,
                "cancelled": story.cancelled is not None,
                "rescheduled": sum(event["outcome"] == DONE for event in story.of("reschedule_answered")),
                "recovered": delivered and not acknowledged,
                "in error queue": delivered and story.attempts[0]["destination"] == MISSING,
            }
        )

    def _check_lost(self, story: Story) -> None:
        found, told = self._found, story.acknowledged
        if story.waiting:
            (row, *_) = story.of("waiting")
            found.violate("waiting", story.key, f"failures: {row['failures']}", story.events)
        elif told is None or story.deliveries:
            return
        elif story.perhaps_cancelled:
            found.counts["perhaps cancelled"] += story.cancelled is None
        elif self._in_a_tail(told.time):
            found.counts["lost in a tail"] += 1
        else:
            found.violate("lost", story.key, f"acknowledged at {told.time:.3f}, never delivered", story.events)

    def _check_stored_again(self, story: Story) -> None:
        stored = story.of("stored")
        if len(stored) < 2:
            return
        if story.stored_too_soon:
            self._found.violate("stored again", story.key, "it has an id, and waited", story.events)
        elif len(stored) > len(story.attempts) and self._faults.near(stored[0].time, stored[-1].time) is None:
            self._found.violate("stored again", story.key, f"{len(stored)} times, without a fault", story.events)

    def _check_copies(self, story: Story) -> None:
        found, copies = self._found, story.copies
        extra = len(copies) - 1
        repeated = max(0, min(extra, story.stored_at_most - 1))
        found.counts["stored again" if story.taken_in else "repeated"] += repeated
        if extra <= repeated:
            return
        first, last = copies[0], copies[-1]
        due = min((span.due for span in story.spans(first.time)), default=first.wall)
        near = self._faults.near(first.time - max(0.0, first.wall - due), first.time)
        what = f"{extra + 1} copies, {last.time - first.time:.1f} s apart"
        if near is not None and not self._exactly_once:
            found.counts["duplicated near a fault"] += extra - repeated
            self._near_faults[near] += extra - repeated
        elif self._in_a_tail(first.time):
            found.counts["duplicated near a fault"] += extra - repeated
        elif last.time - first.time > LONG_AGO and self._promoted_between(first, last):
            found.violate("revived", story.key, what, story.events)
        else:
            found.violate("duplicated", story.key, what, story.events)

    def _check_amounts(self) -> None:
        """No fault can have interrupted more messages than were under way."""
        for fault, copies in self._near_faults.items():
            if copies > self._at_risk:
                what = f"{copies} extra copies; {self._at_risk} messages can be under way at once"
                self._found.violate("duplicated", f"fault {fault.number} ({fault.name})", what)

    def _check_order(self, story: Story) -> None:
        if not self._ended or not story.enlisted or story.of("order"):
            return
        written = story.of("delivered", "waiting")
        if written and not self._in_a_tail(written[0].time):
            self._found.violate("half", story.key, "a message without its order", story.events)

    def _check_place(self, story: Story, delivery: Event) -> None:
        queue = delivery["queue"]
        if queue == story.destination:
            return
        if queue == ERROR:
            self._found.violate("given up", story.key, f"it was for {story.destination}", story.events)
        else:
            self._found.violate("unexpected", story.key, f"in {queue}, not {story.destination}", story.events)

    def _check_time(self, story: Story, delivery: Event) -> None:
        spans = story.due_by(delivery, self._clocks)
        if any(span.until is None for span in spans):
            return
        if any(self._in_a_tail(answer.time) for answer in story.of("cancel_answered", "reschedule_answered")):
            self._found.counts["lost in a tail"] += 1
        elif any(self._interrupted(span) for span in spans):
            self._found.counts["in doubt at a cancel"] += 1
        elif story.cancelled is not None and story.cancelled.time <= delivery.time:
            what = f"cancelled at {story.cancelled.time:.3f}, delivered at {delivery.time:.3f}"
            self._found.violate("cancelled, delivered", story.key, what, story.events)
        else:
            due = min((span.due for span in story.spans(delivery.time) if span.until is None), default=0.0)
            self._found.violate("early", story.key, f"{due - delivery.wall:.3f} s early", story.events)

    def _interrupted(self, span: Span) -> bool:
        """Whether a fault came between the due time and the answer that ended it: a copy may have been under way."""
        assert span.until is not None
        late = max(0.0, span.until.wall - span.due)
        return not self._exactly_once and self._faults.near(span.until.time - late, span.until.time) is not None

    def _in_a_tail(self, time: float) -> bool:
        return self._asynchronous and any(0 <= promoted - time < TAIL for promoted in self._clocks.promotions)

    def _promoted_between(self, first: Event, last: Event) -> bool:
        return any(first.time < promoted < last.time for promoted in self._clocks.promotions)
