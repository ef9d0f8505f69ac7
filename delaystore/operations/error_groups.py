"""Failed messages by filter, and in groups: by destination, kind and reason."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.filters import ALL, given_in
from delaystore.message import utc
from delaystore.operations.failed_message import FailedMessage
from delaystore.times import parse_time

_UUID: Final = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
_HEX: Final = r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{12,}\b"
_ID: Final = re.compile(f"{_UUID}|{_HEX}")
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_LONG_ID: Final = 8
"""Characters of a message_id that is no word of a reason by chance."""
_LONGEST: Final = 300
"""Characters of a group's reason."""
_MOST_GROUPS: Final = 1_000
"""Groups that are told apart; what comes after them is in one more, by destination and kind."""


def grouped_reason(reason: str, message_id: str = "") -> str:
    """`reason` without what differs from one message to the next: ids become `#`, and so do numbers.

    A short message_id may be any word, and counts only in quotation marks.
    """
    text = reason.replace(f"'{message_id}'", "'#'")
    if len(message_id) >= _LONG_ID:
        text = text.replace(message_id, "#")
    return " ".join(_NUMBER.sub("#", _ID.sub("#", text)).split())[:_LONGEST].rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFilter:
    """Failed messages that meet all that is given; nothing given: all of them.

    `destination`: where they were to go; empty: nothing says. `kind`: equal to it. `reason`: of the same group, ids and
    numbers aside. `message_id`: equal to it. `since`, `until`: since <= time of failure < until, aware; what has no
    time of failure does not meet that. Raises InvalidMessageError for a time that is naive or out of range.
    """

    destination: str | None = None
    kind: str | None = None
    reason: str | None = None
    message_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else utc(given, name))
        if self.reason is not None:
            object.__setattr__(self, "reason", grouped_reason(self.reason))

    def __bool__(self) -> bool:
        """Whether anything is given."""
        return self != ErrorFilter()

    def matches(self, message: FailedMessage) -> bool:
        """Whether `message` meets all that is given."""
        at = message.failed_at
        return (
            (self.destination is None or (message.destination or "") == self.destination)
            and (self.kind is None or message.kind == self.kind)
            and (self.message_id is None or message.message_id == self.message_id)
            and (self.since is None or (at is not None and at >= self.since))
            and (self.until is None or (at is not None and at < self.until))
            and (self.reason is None or grouped_reason(message.reason, message.message_id) == self.reason)
        )

    def as_dict(self) -> dict[str, Any]:
        """What is given, for JSON: times in ISO 8601; `{"all": true}` where nothing is."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in given.items()
            if value is not None
        }
        return found or {ALL: True}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "ErrorFilter":
        """The inverse of `as_dict`; raises InvalidMessageError for anything else, an empty object or null among it."""
        given: dict[str, Any] = {}
        for name, value in given_in(document, (each.name for each in fields(cls))).items():
            if not isinstance(value, str):
                raise InvalidMessageError(f"{name} must be text, not {value!r}")
            try:
                given[name] = parse_time(value) if name in ("since", "until") else value
            except ValueError:
                raise InvalidMessageError(f"{name} must be a time in ISO 8601, not {value!r}") from None
        return cls(**given)

    def __str__(self) -> str:
        """For people, on one line."""
        if not self:
            return "everything"
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.as_dict().items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Failed messages with the same destination, kind and reason, ids and numbers aside.

    `first`, `last`: when the first and the last of them failed; None: nothing says. `example`: the reason of one.
    `message_id`: its id. `stuck`: how many of them cannot be sent again.
    """

    destination: str | None
    kind: str
    reason: str
    count: int
    first: datetime | None
    last: datetime | None
    example: str
    message_id: str
    stuck: int = 0

    @property
    def wanted(self) -> ErrorFilter:
        """The filter that its messages meet."""
        return ErrorFilter(destination=self.destination or "", kind=self.kind, reason=self.reason)


class Grouping:
    """Counts failed messages by group, in bounded memory."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str | None, str, str], ErrorGroup] = {}

    def add(self, message: FailedMessage) -> None:
        """Count one more."""
        reason = grouped_reason(message.reason, message.message_id)
        key = (message.destination, message.kind, reason)
        if key not in self._groups and len(self._groups) >= _MOST_GROUPS:
            key = (message.destination, message.kind, "(other reasons)")
        before = self._groups.get(key)
        times = [] if before is None else [before.first, before.last]
        known = [at for at in (*times, message.failed_at) if at is not None]
        self._groups[key] = ErrorGroup(
            destination=key[0],
            kind=key[1],
            reason=key[2],
            count=1 if before is None else before.count + 1,
            first=min(known, default=None),
            last=max(known, default=None),
            example=message.reason if before is None else before.example,
            message_id=message.message_id if before is None else before.message_id,
            stuck=(0 if before is None else before.stuck) + (message.obstacle is not None),
        )

    def result(self) -> list[ErrorGroup]:
        """The groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: (-group.count, group.destination or "", group.reason))


def grouped(messages: Iterable[FailedMessage]) -> list[ErrorGroup]:
    """The groups of `messages`, the largest first."""
    grouping = Grouping()
    for message in messages:
        grouping.add(message)
    return grouping.result()
