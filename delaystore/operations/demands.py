"""What makes an endpoint healthy, for whoever watches it: `delaystore health`, and the API's `/health`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from delaystore.dispatcher.health import OVERDUE_ALARM
from delaystore.operations.overview import Overview
from delaystore.times import overdue_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What an endpoint must be like to be healthy, besides that its store answers and can be written."""

    max_overdue: timedelta = OVERDUE_ALARM
    dispatcher: bool = False
    """Whether one must be running."""

    def unmet(self, overview: Overview) -> Iterator[str]:
        """What is not as it must be, a clause each; what is unknown for want of an answer counts for good."""
        if overview.overdue is not None and overview.overdue > self.max_overdue:
            yield overdue_text(overview.overdue)
        if self.dispatcher and not overview.dispatchers:
            known = overview.dispatchers is not None
            yield "no dispatcher is running" if known else "it is unknown whether a dispatcher is running"
