"""What a test expects of a message, and what to say when there is none such."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, TypedDict

from delaystore.address import parse_address
from delaystore.message import DelayedMessage, are_same_time, utc
from delaystore.testing._clock import moved, sum_of

MOST_LISTED: Final = 20
"""Messages that a report lists, of each kind."""
MOST_SHOWN: Final = 80
"""Characters of a value that a report shows."""


class Absent(Enum):
    """Says that no JSON is expected, for which None is a value."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Expected(TypedDict, total=False):
    """What a test may say of a message, beside its destination and body; see `TestDelivery.assert_sent`."""

    json: Any
    delay: timedelta | float | None
    at: datetime | None
    headers: Mapping[str, Any] | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is None (of `json`: ABSENT) may be anything. `now`: from when `delay` counts.

    `headers`: these at least.
    """

    now: datetime
    destination: str | None = None
    body: bytes | str | None = None
    json: Any = ABSENT
    delay: timedelta | float | None = None
    at: datetime | None = None
    headers: Mapping[str, Any] | None = None
    key: str | None = None

    def differences(self, message: DelayedMessage) -> Iterator[str]:
        """In what `message` is not as expected."""
        if self.destination is not None and parse_address(message.destination) != parse_address(self.destination):
            yield "destination"
        if self.body is not None and message.body != _bytes(self.body):
            yield "body"
        if self.json is not ABSENT and not _is_json(message.body, self.json):
            yield "body"
        if not all(are_same_time(due_time, message.due_time) for due_time in self._due_times()):
            yield "due time"
        if not (self.headers or {}).items() <= message.headers.items():
            yield "headers"
        if self.key is not None and message.key != self.key:
            yield "key"

    def is_met_by(self, message: DelayedMessage) -> bool:
        """Whether `message` is as expected."""
        return next(self.differences(message), None) is None

    def __str__(self) -> str:
        parts = [] if self.destination is None else [f"to {self.destination!r}"]
        parts += [] if self.body is None else [f"body {_short(_bytes(self.body))}"]
        parts += [] if self.json is ABSENT else [f"JSON {_short(self.json)}"]
        parts += [_due(due_time, self.now) for due_time in self._due_times()]
        parts += [f"headers {_short(dict(self.headers))}"] if self.headers else []
        parts += [] if self.key is None else [f"key {self.key!r}"]
        return ", ".join(parts) or "any"

    def _due_times(self) -> Iterator[datetime]:
        if self.delay is not None:
            yield moved(self.now, sum_of(self.delay))
        if self.at is not None:
            yield utc(self.at, "at")


def report(
    heading: str, expected: Expectation, waiting: Sequence[DelayedMessage], delivered: Sequence[DelayedMessage]
) -> str:
    """`heading`, and below it what there is, each with what is different in it."""
    lines = [heading]
    for name, messages in (("waiting", waiting), ("delivered", delivered)):
        lines.append(f"{name}:" if messages else f"{name}: nothing")
        lines += [f"  {_line(message, expected)}" for message in messages[:MOST_LISTED]]
        if len(messages) > MOST_LISTED:
            lines.append(f"  and {len(messages) - MOST_LISTED} more")
    return "\n".join(lines)


def _line(message: DelayedMessage, expected: Expectation) -> str:
    parts = [f"to {message.destination!r}", f"body {_short(message.body)}", _due(message.due_time, expected.now)]
    parts += [f"headers {_short(dict(message.headers))}"] if message.headers else []
    parts += [] if message.key is None else [f"key {message.key!r}"]
    parts += [f"failed {message.failure_count} times"] if message.failure_count else []
    different = ", ".join(dict.fromkeys(expected.differences(message)))
    return ", ".join(parts) + (f" [different: {different}]" if different else "")


def _due(due_time: datetime, now: datetime) -> str:
    gap = due_time - now
    said = f"in {gap}" if gap > timedelta(0) else f"{-gap} ago" if gap else "now"
    return f"due {due_time.astimezone(UTC).isoformat(sep=' ')} ({said})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _is_json(body: bytes, expected: Any) -> bool:
    try:
        return bool(json.loads(body) == expected)
    except ValueError:
        return False
