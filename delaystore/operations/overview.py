"""How an endpoint is doing, at one moment: what `delaystore status` and the web page's first screen show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Any, Final

from delaystore.amounts import counted, up_to
from delaystore.dispatcher.breakers import BreakerState
from delaystore.dispatcher.health import OVERDUE_ALARM
from delaystore.documents import field, record
from delaystore.lateness import LatenessHistogram
from delaystore.operations.recent import Recent
from delaystore.stores.abc import Count
from delaystore.stores.operable import Activity, Destination, DispatcherRecord, IngressRecord, Operation
from delaystore.times import duration_text, overdue_text

RATE_OVER: Final = 5
"""Minutes over which `Overview.rate` is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is known of an endpoint. Everywhere None means: the store did not answer in time, or cannot tell.

    `now`: the store's clock. `overdue`: for how long the oldest message has been due; zero: nothing is overdue.
    `first_due`: when the first message is due (None also: nothing waits). `failing`, `parked`: counted up to 10,000, at
    least so many where not `exact`. `destinations`: those that are paused, limited or resuming. `operations`: those
    that run, or may be resumed. `ingresses`: those that live, and for each queue that has none any more the last one.
    `activity`: of the last hour, by minute; idle minutes are left out. `error_queue_depth`: as the transport says, or
    else the dispatchers; `error_queue_seen`: when the broker said so. `operable` False: the store's tables are of an
    earlier release; None also: it offers no operations. `read_only`: why nothing can be stored; None: nothing is known.
    `problem`: why the store did not answer; None: it did. `hindrances`: what is wrong with its tables, so that
    messages cannot be stored or dispatched, a line with its remedy each.
    """

    endpoint: str
    error_queue: str
    now: datetime | None = None
    waiting: Count | None = None
    first_due: datetime | None = None
    overdue: timedelta | None = None
    failing: Count | None = None
    parked: Count | None = None
    destinations: Sequence[Destination] | None = None
    operations: Sequence[Operation] | None = None
    dispatchers: Sequence[DispatcherRecord] | None = None
    ingresses: Sequence[IngressRecord] | None = None
    activity: Sequence[Activity] | None = None
    error_queue_depth: int | None = None
    error_queue_seen: datetime | None = None
    operable: bool | None = None
    read_only: str | None = None
    problem: str | None = None
    hindrances: Sequence[str] = ()
    remarks: Sequence[str] = ()
    """What else was found wrong while asking, in plain sentences."""

    def recent(self, minutes: int) -> Recent | None:
        """What was done in the last `minutes`, an hour's at most."""
        if self.activity is None or self.now is None:
            return None
        return Recent.of(self.activity, self.now, minutes)

    @property
    def rate(self) -> float | None:
        """Messages delivered a second, over the last five minutes."""
        recent = self.recent(RATE_OVER)
        return None if recent is None else recent.rate

    @property
    def lateness(self) -> LatenessHistogram | None:
        """Of all that was delivered in the last hour."""
        if self.activity is None:
            return None
        return reduce(add, (each.lateness for each in self.activity), LatenessHistogram())

    @property
    def paused(self) -> Sequence[Destination] | None:
        """The destinations that are paused."""
        return None if self.destinations is None else [each for each in self.destinations if each.paused]

    @property
    def limited(self) -> Sequence[Destination] | None:
        """The destinations that have a limit of messages a second."""
        return None if self.destinations is None else [each for each in self.destinations if each.max_rate is not None]

    @property
    def store_problem(self) -> str | None:
        """Why the store cannot say how it is, or takes nothing; None: it can, and nothing is known to hinder it."""
        return self.problem if self.now is None else self.read_only or "; ".join(self.hindrances) or None

    @property
    def wrong(self) -> Sequence[str]:
        """What is wrong, in plain sentences, the worst first; empty: nothing is known to be."""
        return [
            *self._of_store(),
            *self._of_dispatching(),
            *(sentence for each in self.ingresses or () for sentence in self._of_ingress(each)),
            *self._of_failures(),
            *self.remarks,
        ]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON: times in ISO 8601, durations in seconds, None where nothing is known.

        `delaystore status --json` and `health --json` have what they say of it under the same names.
        """
        activity = None if self.activity is None else [_minute(each) for each in self.activity]
        return {
            "endpoint": self.endpoint,
            "now": field(self.now),
            "wrong": list(self.wrong),
            "waiting": None if self.waiting is None else self.waiting.messages,
            "exact": None if self.waiting is None else self.waiting.exact,
            "first_due": field(self.first_due),
            "oldest_overdue": self.overdue.total_seconds() if self.overdue else None,
            "failing": None if self.failing is None else self.failing.messages,
            "parked": None if self.parked is None else self.parked.messages,
            "paused": None if self.paused is None else [each.name for each in self.paused],
            "error_queue": self.error_queue,
            "error_queue_depth": self.error_queue_depth,
            "error_queue_seen": field(self.error_queue_seen),
            "destinations": field(self.destinations),
            "operations": field(self.operations),
            "dispatchers": field(self.dispatchers),
            "ingresses": None if self.ingresses is None else [self._ingress(each) for each in self.ingresses],
            "rate": self.rate,
            "lateness": field(self.lateness),
            "activity": activity,
            "store": self.problem or self.store_problem,
            "operable": self.operable,
        }

    def is_gone(self, ingress: IngressRecord) -> bool:
        """Whether it has died, by what it told last."""
        return self.now is not None and ingress.is_gone(self.now)

    def _ingress(self, ingress: IngressRecord) -> dict[str, Any]:
        return {**record(ingress), "gone": self.is_gone(ingress)}

    def _of_store(self) -> Iterator[str]:
        if self.problem is not None:
            yield f"The store cannot say how it is: {self.problem}."
        if self.read_only is not None:
            yield f"Nothing can be stored: {self.read_only}."
        yield from (f"Messages cannot be stored or dispatched: {each}." for each in self.hindrances)
        if self.operable is False and not self.hindrances:
            yield "The tables are of an earlier release; `delaystore setup` upgrades them."

    def _of_dispatching(self) -> Iterator[str]:
        if self.overdue is not None and self.overdue >= OVERDUE_ALARM:
            yield f"{overdue_text(self.overdue).capitalize()}."
        if self.dispatchers is not None and not self.dispatchers and self.waiting is not None and self.waiting.messages:
            yield "No dispatcher is running, as far as they tell, and messages wait."
        for each in self.dispatchers or ():
            who = f"dispatcher {each.name} (process {each.pid} on {each.host})"
            if each.problem is not None:
                yield f"The {who} forwards nothing: {each.problem}."
            for name, state in each.breakers.items():
                if state == BreakerState.TRIGGERED:
                    yield f"The {who} has a triggered breaker: {name}."

    def _of_ingress(self, ingress: IngressRecord) -> Iterator[str]:
        who = f"ingress of {ingress.queue!r} (process {ingress.pid} on {ingress.host})"
        if self.now is not None and ingress.is_gone(self.now):
            yield f"The {who} is gone: it has told nothing for {duration_text(self.now - ingress.beat)}."
        else:
            if ingress.problem is not None:
                yield f"The {who} takes nothing in: {ingress.problem}."
            for name, state in ingress.breakers.items():
                if state == BreakerState.TRIGGERED:
                    yield f"The {who} has a triggered breaker: {name}."
            if ingress.kept_back:
                yield f"The {who} keeps {counted(ingress.kept_back, 'message')} back: {ingress.why_kept_back}."
        if ingress.rejected_depth:
            yield f"The rejected queue {ingress.rejected_queue!r} holds {counted(ingress.rejected_depth, 'message')}."

    def _of_failures(self) -> Iterator[str]:
        if self.error_queue_depth:
            yield f"The error queue {self.error_queue!r} holds {counted(self.error_queue_depth, 'message')}."
        if self.failing is not None and self.failing.messages:
            number = up_to(self.failing.messages, "message", exact=self.failing.exact)
            yield f"{number} could not be forwarded so far, and will be tried again."


def _minute(activity: Activity) -> dict[str, Any]:
    """With its rate, in messages a second."""
    return {**record(activity), "rate": activity.delivered / 60}
