"""Which waiting messages an operation is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Self

from delaystore.errors import InvalidMessageError
from delaystore.message import MAX_MESSAGE_ID_BYTES, NOTHING, DelayedMessage, check_destination, utc

_MAX_HEADERS: Final = 16
"""Headers that one filter names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Waiting messages that meet all that is given; nothing given: all of them.

    `destination`: equal to it. `since`, `until`: since <= due time < until, aware. `id_prefix`: how the message_id
    begins. `headers`: each has this value, compared as text (see `header_text`). `failing`: True: forwarding has failed
    before; None: whether or not. `paused`: True: its destination is paused, and it would be due; None: whether or not.

    Raises InvalidMessageError for what no message can have.
    """

    destination: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    id_prefix: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    failing: bool | None = None
    paused: bool | None = None

    def __post_init__(self) -> None:
        if self.destination is not None:
            check_destination(self.destination)
        for name in ("since", "until"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else utc(given, name))
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidMessageError(f"nothing is due from {self.since.isoformat()} to {self.until.isoformat()}")
        if self.id_prefix is not None:
            _check_prefix(self.id_prefix)
        if len(self.headers) > _MAX_HEADERS:
            raise InvalidMessageError(f"a filter names {_MAX_HEADERS} headers at most, not {len(self.headers)}")
        for name, value in self.headers.items():
            if type(name) is not str or type(value) is not str:
                raise InvalidMessageError(f"a filter compares headers as text: {name!r} must be a str, not {value!r}")
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))

    def __bool__(self) -> bool:
        """Whether anything is given."""
        return self != MessageFilter()

    def matches_headers(self, headers: Mapping[str, Any]) -> bool:
        """Whether a message with these headers meets what is said of headers."""
        return all(name in headers and header_text(headers[name]) == value for name, value in self.headers.items())

    def matches(self, message: DelayedMessage) -> bool:
        """Whether `message` meets all that is given."""
        return (
            (self.destination is None or message.destination == self.destination)
            and (self.since is None or message.due_time >= self.since)
            and (self.until is None or message.due_time < self.until)
            and (self.id_prefix is None or message.message_id.startswith(self.id_prefix))
            and (self.failing is None or (message.failure_count > 0) is self.failing)
            and (self.paused is None or message.is_parked is self.paused)
            and self.matches_headers(message.headers)
        )

    def as_dict(self) -> dict[str, Any]:
        """What is given, for JSON: times in ISO 8601."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _as_json(value) for name, value in given.items() if value is not None and value != NOTHING}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`; raises InvalidMessageError for anything else."""
        known = {each.name for each in fields(cls)}
        for name in document:
            if name not in known:
                raise InvalidMessageError(f"unknown filter {name!r}; known are {', '.join(sorted(known))}")
        times = {name: _time(document[name], name) for name in ("since", "until") if name in document}
        for name in ("destination", "id_prefix"):
            if not isinstance(document.get(name), str | None):
                raise InvalidMessageError(f"{name} must be text, not {document[name]!r}")
        for name in ("failing", "paused"):
            if not isinstance(document.get(name), bool | None):
                raise InvalidMessageError(f"{name} must be true or false, not {document[name]!r}")
        if not isinstance(document.get("headers", {}), Mapping):
            raise InvalidMessageError(f"headers must be an object, not {document['headers']!r}")
        return cls(**{**document, **times})

    def __str__(self) -> str:
        """For people, on one line."""
        document = self.as_dict()
        headers = document.pop("headers", {})
        parts = [f"{name.replace('_', ' ')} {value}" for name, value in document.items() if not isinstance(value, bool)]
        parts += [name if value else f"not {name}" for name, value in document.items() if isinstance(value, bool)]
        parts += [f"header {name}={value}" for name, value in headers.items()]
        return ", ".join(parts) or "all messages"


EVERYTHING: Final = MessageFilter()
"""All that waits."""


def header_text(value: Any) -> str:
    """A header's value as a filter compares it: text as it is, true and false, UTF-8 of bytes, ISO 8601, or `str`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _check_prefix(prefix: object) -> None:
    if type(prefix) is not str or not prefix:
        raise InvalidMessageError(f"id_prefix must be text with at least one character, not {prefix!r}")
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError:
        raise InvalidMessageError(f"id_prefix {prefix!r} cannot be written as UTF-8") from None
    if size > MAX_MESSAGE_ID_BYTES or "\0" in prefix:
        raise InvalidMessageError(f"id_prefix {prefix[:40]!r} is longer than any message_id, or has a NUL character")


def _time(value: object, name: str) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value)  # type: ignore[arg-type]  # anything else is refused here
    except (TypeError, ValueError):
        raise InvalidMessageError(f"{name} must be a time in ISO 8601 with its offset, not {value!r}") from None


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value
