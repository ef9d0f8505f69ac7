"""Messages, reports and lateness as JSON, for the command line, the page, the API and the control queue."""

import json
import math
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delaystore.errors import InvalidMessageError
from delaystore.filters import MessageFilter
from delaystore.message import DelayedMessage, FailedAttempt, are_same_time, unmarked

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHORTEST: Final = 0.001
"""Seconds: the bound of the first bucket."""
FACTOR: Final = 1.5
"""Each bound is this many times the one before, so that a percentile is off by less than half of itself."""
BOUNDS: Final[Sequence[float]] = tuple(SHORTEST * FACTOR**number for number in range(46))
"""Upper bounds of the buckets, in seconds, up to a day; one more bucket has later messages."""


class LatenessHistogram:
    """How many messages were so late, by buckets of `BOUNDS`. It is not safe to share between threads."""

    __slots__ = ("counts",)

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self.counts = [*counts, *[0] * (len(BOUNDS) + 1 - len(counts))]

    def __eq__(self, other: object) -> bool:
        return self.counts == other.counts if isinstance(other, LatenessHistogram) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"LatenessHistogram.from_text({self.text()!r})"

    def add(self, lateness: Iterable[float]) -> None:
        """Count messages by their lateness in seconds."""
        for seconds in lateness:
            self.counts[bisect_left(BOUNDS, seconds)] += 1

    def __add__(self, other: "LatenessHistogram") -> "LatenessHistogram":
        return LatenessHistogram([mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)])

    @property
    def total(self) -> int:
        """How many messages were counted."""
        return sum(self.counts)

    def percentile(self, percent: float) -> float | None:
        """The lateness in seconds that `percent` of the messages did not exceed, interpolated within a bucket.

        None: nothing was counted.
        """
        wanted, before = self.total * percent / 100, 0
        if not self.total:
            return None
        for number, count in enumerate(self.counts):
            if count and before + count >= wanted:
                lower = BOUNDS[number - 1] if number else 0.0
                upper = BOUNDS[min(number, len(BOUNDS) - 1)]
                return lower + (upper - lower) * max(0.0, wanted - before) / count
            before += count
        return BOUNDS[-1]

    def text(self) -> str:
        """The counts as JSON, without the zeros at the end."""
        last = max((number for number, count in enumerate(self.counts) if count), default=-1)
        return json.dumps(self.counts[: last + 1], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `text`; raises ValueError for anything else."""
        try:
            counts = json.loads(text)
        except RecursionError:
            counts = None
        fits = isinstance(counts, list) and len(counts) <= len(BOUNDS) + 1
        if not fits or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"not a histogram of lateness: {text[:80]!r}")
        return cls(counts)


_PERCENTILES: Final = (50, 90, 99)


class _Content(Protocol):
    @property
    def headers(self) -> Mapping[str, Any]: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...
    @property
    def body(self) -> bytes: ...


class _Received(_Content, Protocol):
    @property
    def message_id(self) -> str: ...


def summary(message: DelayedMessage) -> dict[str, Any]:
    """A waiting message as `list` shows it. `size`: of the body, in bytes."""
    return {
        "message_id": message.message_id,
        "destination": message.destination,
        "due_time": instant(unmarked(message)),
        "next_attempt": _next_attempt(message),
        "not_after": instant(message.not_after),
        "failure_count": message.failure_count,
        "size": len(message.body),
        "key": None if message.key is None else _text(message.key),
        "parked": message.is_parked,
        "last_failure": failure(message.failures[-1]) if message.failures else None,
    }


def failure(attempt: FailedAttempt) -> dict[str, Any]:
    """Why an attempt to forward a message failed."""
    return {"at": instant(attempt.at), "kind": _text(attempt.kind), "reason": _text(attempt.reason)}


def waiting(message: DelayedMessage) -> dict[str, Any]:
    """A waiting message as `show` shows it: with all kept failures, the oldest first."""
    return {**summary(message), "failures": [failure(each) for each in message.failures], **content(message)}


def received(message: _Received) -> dict[str, Any]:
    """A message as `receive` shows it."""
    return {"message_id": message.message_id, **content(message)}


def record(of: "DataclassInstance") -> dict[str, Any]:
    """The document of a record, such as an Operation, a Destination, a DispatcherRecord or an AuditEntry.

    Times in ISO 8601 (UTC), durations in seconds.
    """
    return {each.name: field(getattr(of, each.name)) for each in fields(of)}


def field(value: object) -> Any:
    """A value in such a record, or several in a sequence; of a histogram, its percentiles."""
    if isinstance(value, MessageFilter):
        return value.as_dict()
    if isinstance(value, LatenessHistogram):
        return percentiles(value)
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: field(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [field(item) for item in value]
    return record(value) if is_dataclass(value) and not isinstance(value, type) else value


def percentiles(lateness: LatenessHistogram) -> dict[str, float | None]:
    """How late messages arrived, in seconds: p50, p90 and p99; None: nothing was delivered."""
    return {f"p{percent}": lateness.percentile(percent) for percent in _PERCENTILES}


def instant(time: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if time is None else time.astimezone(UTC).isoformat()


def plain(value: Any) -> Any:
    """A header's value as JSON has it: bytes as {"base64": ...}, times in ISO 8601; decimals, NaN, infinity as text."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(name): plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _next_attempt(message: DelayedMessage) -> str | None:
    """None: when it is due; or, of a parked one, when its destination is resumed."""
    is_due_time = are_same_time(message.next_attempt, message.due_time)
    return None if message.is_parked or is_due_time else instant(message.next_attempt)


def _text(text: str) -> str:
    """`text` with an escape for half a character, which strict JSON parsers refuse."""
    return text.encode(errors="backslashreplace").decode()


def content(message: _Content) -> dict[str, Any]:
    """Headers, properties, and the body as `body`, or as `body_base64` if it is not text."""
    found: dict[str, Any] = {"headers": plain(message.headers), "properties": plain(message.properties)}
    try:
        return {**found, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**found, "body_base64": b64encode(message.body).decode()}


def body_in(body: str | None, body_base64: str | None) -> bytes | None:
    """The body that a document gives in one of two ways; None: in neither. Raises InvalidMessageError."""
    if body is not None and body_base64 is not None:
        raise InvalidMessageError("give one of body and body_base64, not both")
    try:
        if body_base64 is not None:
            return b64decode(body_base64, validate=True)
        return None if body is None else body.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError("body cannot be written as UTF-8") from None
    except ValueError:
        raise InvalidMessageError("body_base64 is not base64") from None
