"""Messages of the error queue: what dispatchers wrote in them, and groups of equal reasons."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.filters import ALL, filter_members
from delaystore.message import DelayedMessage, utc
from delaystore.stores.sql.codec import untagged
from delaystore.text import (
    DUE_TIME,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    EXPIRATION,
    FAILED_CARBON_COPIES,
    FAILED_QUEUE,
    FAILURE_COUNT,
    HEADERS_IN_BODY,
    RAW_HEADERS,
    RAW_PROPERTIES,
    REJECTED_REASON,
    STACK_TRACE,
    TIME_OF_FAILURE,
    UNDECODED,
    UNREAD_HEADERS,
    JsonError,
    parse_json,
    parse_time,
    without_carbon_copies,
)
from delaystore.transports.abc import ReceivedMessage
from delaystore.transports.rabbitmq.delay_headers import parsed_time

_OURS: Final = "delaystore."
"""How the exception's type begins in a copy that a dispatcher wrote; the kind of failure follows."""
_UNREADABLE: Final = "Unreadable"
_REJECTED: Final = "Rejected"
"""In the rejected queue of an ingress, or of a control queue, which may be looked at like an error queue."""
_ADDED: Final = (
    EXCEPTION_TYPE,
    EXCEPTION_MESSAGE,
    STACK_TRACE,
    TIME_OF_FAILURE,
    FAILED_QUEUE,
    DUE_TIME,
    FAILURE_COUNT,
    EXPIRATION,
)
_DEATHS: Final = "x-death"
"""The header by which RabbitMQ notes that it dead-lettered a message, which then need not be a dispatcher's copy."""
_FORGEABLE: Final = "so its header delaystore.failed-cc may be its sender's; publish it again from your program"
_EXCEPTION_INFO: Final = "NServiceBus.ExceptionInfo."
_RETRIES: Final = ("NServiceBus.Retries", "NServiceBus.Retries.Timestamp", "NServiceBus.FLRetries")
"""The counter of an NServiceBus endpoint: it begins again with a message that is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMessage:
    """A message in the error queue, and the original as it would be sent again.

    Attributes:
        message_id: Its id; empty: it has none.
        destination: Where it was to go; None: unknown.
        kind: Refused, Rejected, Unroutable and the like; of another program's message the type of its exception.
        reason: Why it failed, for people.
        failed_at: When it failed; None: unknown.
        due_time: When it was due; None: unknown.
        failures: Attempts that failed; 0: unknown.
        headers: The original's headers.
        properties: The original's AMQP properties.
        body: The original's body; None: it was left out, as many messages were read.
        size: Bytes of the original's body.
        obstacle: Why it cannot be sent again; None: it can.

    """

    message_id: str
    destination: str | None
    kind: str
    reason: str
    failed_at: datetime | None
    due_time: datetime | None
    failures: int
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    body: bytes | None
    size: int
    obstacle: str | None = None

    def original(self, destination: str | None = None) -> DelayedMessage:
        """Return the message as it was sent.

        Args:
            destination: Send it there, its headers CC and BCC renamed: the copies were meant beside its own
                destination. None: to its own destination.

        Returns:
            The message, with the due time that it had.

        Raises:
            InvalidMessageError: It cannot be sent; the text says why.

        """
        to = destination or self.destination
        if self.obstacle is not None:
            raise InvalidMessageError(self.obstacle)
        if to is None:
            raise InvalidMessageError("the message does not name its destination; give one")
        if self.body is None:
            raise InvalidMessageError("its body was left out; get it by its id")
        if not self.message_id:
            raise InvalidMessageError("it has no message id")
        return DelayedMessage(
            message_id=self.message_id,
            destination=to,
            due_time=self.due_time or self.failed_at or datetime.now(UTC),
            body=self.body,
            headers=self.headers if destination is None else without_carbon_copies(self.headers),
            properties=self.properties,
        )


def failed_message(received: ReceivedMessage) -> FailedMessage:
    """The original of `received`, a copy out of the error queue.

    Any program may have written it: delaystore's dispatchers, in any of their forms, an endpoint of NServiceBus, or
    another program, of whose message nothing may be known but its content.
    """
    ours = str(received.headers.get(EXCEPTION_TYPE, "")).startswith(_OURS)
    obstacle = _obstacle(received.headers, received.properties)
    headers, properties, body = dict(received.headers), dict(received.properties), received.body
    if obstacle is not None:
        headers = _shown(headers)
    elif ours:
        try:
            headers, properties, body = _unpacked(headers, properties, body)
        except ValueError as error:
            obstacle = f"what the error queue could not hold otherwise cannot be read: {error}"
    info = dict(headers)
    kind = str(info.get(EXCEPTION_TYPE, _REJECTED if REJECTED_REASON in info else ""))
    if ours:
        kind = kind.removeprefix(_OURS)
        headers = {name: value for name, value in headers.items() if name not in _ADDED}
        if EXPIRATION in info:
            properties["expiration"] = info[EXPIRATION]
    else:
        headers = {name: value for name, value in headers.items() if not _is_of_failure(name)}
    headers = dict(without_carbon_copies(headers))
    if ours and not headers.keys().isdisjoint(FAILED_CARBON_COPIES.values()):
        if _DEATHS in received.headers:
            obstacle = obstacle or f"a queue dead-lettered it, {_FORGEABLE}"
        else:
            headers.update({name: headers.pop(kept) for name, kept in FAILED_CARBON_COPIES.items() if kept in headers})
    if ours and kind == _UNREADABLE:
        obstacle = "it was read from a damaged row of the store, and is no message"
    return FailedMessage(
        message_id=received.message_id,
        destination=_text(info.get(FAILED_QUEUE)),
        kind=kind,
        reason=str(info.get(EXCEPTION_MESSAGE, info.get(REJECTED_REASON, ""))),
        failed_at=parsed_time(info.get(TIME_OF_FAILURE)),
        due_time=_due_time(info.get(DUE_TIME)),
        failures=_count(info.get(FAILURE_COUNT)),
        headers=headers,
        properties=properties,
        body=body,
        size=len(body),
        obstacle=obstacle,
    )


def _obstacle(headers: Mapping[str, Any], properties: Mapping[str, Any]) -> str | None:
    """Why another program's headers cannot be sent as they were; None: they can, as far as is known."""
    if UNREAD_HEADERS in headers:
        return f"its headers cannot be read: {headers[UNREAD_HEADERS]}"
    if UNDECODED in headers or UNDECODED in properties:
        return "its headers or properties are no JSON that this program wrote"
    try:
        return None if _names_are_text(headers) else "the name of one of its headers is no text"
    except RecursionError:
        return "its headers are nested too deeply"


def _names_are_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _names_are_text(item) for name, item in value.items())
    return all(map(_names_are_text, value)) if isinstance(value, list) else True


def _shown(headers: Mapping[Any, Any]) -> dict[str, Any]:
    """For people: names that are no text with escapes, without values that hold others."""
    return {
        name if isinstance(name, str) else name.decode(errors="backslashreplace"): value
        for name, value in headers.items()
        if not isinstance(value, Mapping | list)
    }


def _unpacked(
    headers: dict[str, Any], properties: dict[str, Any], body: bytes
) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """With values that are text, or in the body's first line, in their places again; of a damaged row the text stays.

    Raises ValueError for a copy that a dispatcher did not write.
    """
    if HEADERS_IN_BODY in headers:
        length = _count(headers.pop(HEADERS_IN_BODY))
        line, body = body[:length], body[length:]
        written = _parsed(line)
        headers = {**untagged(_parsed(written.get("headers"))), **headers}
        properties = {**untagged(_parsed(written.get("properties"))), **properties}
    if headers.get(EXCEPTION_TYPE) != _OURS + _UNREADABLE:
        headers = {**untagged(_parsed(headers.pop(RAW_HEADERS, None))), **headers}
        properties = {**untagged(_parsed(headers.pop(RAW_PROPERTIES, None))), **properties}
    return headers, properties, body


def _parsed(written: Any) -> Mapping[str, Any]:
    """A JSON object, or the text of one; nothing for None. Raises ValueError for anything else."""
    try:
        found = parse_json(written) if isinstance(written, str | bytes) else written
    except JsonError as error:
        raise ValueError(f"it {error}") from None
    if not isinstance(found, dict | None):
        raise ValueError("it is no JSON object")
    return found or {}


def _is_of_failure(name: str) -> bool:
    return name.startswith(_EXCEPTION_INFO) or name in (FAILED_QUEUE, TIME_OF_FAILURE, *_RETRIES)


def _due_time(text: object) -> datetime | None:
    try:
        return utc(parse_time(str(text)), "the due time")
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


_UUID: Final = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
_HEX: Final = r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{12,}\b"
_ID: Final = re.compile(f"{_UUID}|{_HEX}")
_NUMBER: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*Z?|\d+(?:[.,:]\d+)*")
"""Also a time as one number."""
_LONG_ID: Final = 8
"""Characters of a message_id that is no word of a reason by chance."""
_LONGEST: Final = 300
"""Characters of a group's reason."""
_MOST_GROUPS: Final = 1_000
"""Maximum number of groups; messages of further ones are in one more, by destination and kind."""


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

    Attributes:
        destination: Where they were to go; empty: unknown.
        kind: Their kind of failure.
        reason: A reason of their group: ids and numbers may differ.
        message_id: Their id.
        since: They failed at this time or later, an aware datetime. A message without a time of failure does not match.
        until: They failed before this time, as `since`.

    Raises:
        InvalidMessageError: A time is naive or out of range.

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
        """Whether a failed message meets all that is given.

        Args:
            message: The message.

        Returns:
            True also where nothing is given.

        """
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
        """The filter for JSON: times in ISO 8601; `{"all": true}` where nothing is."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in given.items()
            if value is not None
        }
        return found or {ALL: True}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "ErrorFilter":
        """Make a filter of a document: the inverse of `as_dict`.

        Args:
            document: The conditions; `{"all": true}` for none.

        Returns:
            The filter.

        Raises:
            InvalidMessageError: The document is anything else: an empty object, or with null or an unknown name.

        """
        given: dict[str, Any] = {}
        for name, value in filter_members(document, (each.name for each in fields(cls))).items():
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

    Attributes:
        destination: Where they were to go; None: unknown.
        kind: Their kind of failure.
        reason: Their reason, without ids and numbers.
        count: How many there are.
        first: When the first of them failed; None: unknown.
        last: When the last of them failed; None: unknown.
        example: The reason of one of them.
        message_id: The id of that one.
        stuck: How many of them cannot be sent again.

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


_MOST_REASONS: Final = 100
"""Different reasons that are counted."""


@dataclass(slots=True, kw_only=True)
class ErrorReport:
    """The result of a replay or a discard; of a dry run: the result that it would have.

    Attributes:
        depth: Messages in the error queue at the beginning.
        examined: Messages that were read.
        done: Messages that were sent again and removed, or discarded.
        destinations: How many of these were for each destination.
        left: How many others that match stay, by the reason.
        perhaps_twice: Messages that may be at their destination and are still in the error queue.
        dry_run: Nothing was changed.
        interrupted: A signal asked to stop.
        problem: Why it ended early; None: it did not.

    """

    depth: int = 0
    examined: int = 0
    done: int = 0
    destinations: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    perhaps_twice: int = 0
    dry_run: bool = False
    interrupted: bool = False
    problem: str | None = None

    @property
    def good(self) -> bool:
        """Whether all that matches was done."""
        return not self.left and not self.interrupted and self.problem is None

    def leave(self, reason: str) -> None:
        """Count a message that stays.

        Args:
            reason: Why it stays, for people.

        """
        known = reason in self.left or len(self.left) < _MOST_REASONS
        self.left[reason if known else "other reasons"] += 1
