"""What dispatchers did in the last minutes, as rows of a table."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from delaystore.amounts import rate_text
from delaystore.lateness import LatenessHistogram
from delaystore.times import duration_text

if TYPE_CHECKING:
    from delaystore.operations.recent import Recent

WINDOWS: Final = (1, 5, 60)
"""Minutes."""
COLUMNS: Final = ("last", "delivered", "failed", "to error queue", "rate", "late p50", "p90", "p99")


def recent_row(recent: "Recent") -> tuple[str, ...]:
    """Its cells, as of COLUMNS."""
    done = recent.done
    counts = (done.delivered, done.failed, done.moved_to_error_queue)
    late = (_lateness(done.lateness, percent) for percent in (50, 90, 99))
    return (f"{recent.minutes} min", *(f"{count:,}" for count in counts), rate_text(recent.rate), *late)


def _lateness(lateness: LatenessHistogram, percent: int) -> str:
    seconds = lateness.percentile(percent)
    return "-" if seconds is None else duration_text(timedelta(seconds=seconds))
