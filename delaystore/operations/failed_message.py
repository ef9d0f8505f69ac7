"""A message in the error queue, read back: why it is there, and what was to be delivered."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from delaystore.errors import InvalidMessageError
from delaystore.headers import (
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
    without_carbon_copies,
)
from delaystore.message import DelayedMessage, utc
from delaystore.sql.codec import untagged
from delaystore.strict_json import JsonError, parse_json
from delaystore.times import parse_time
from delaystore.transports.abc import ReceivedMessage

_OURS: Final = "delaystore."
"""How the exception's type begins in a copy that a dispatcher wrote; what follows is the kind of failure."""
_UNREADABLE: Final = "Unreadable"
_REJECTED: Final = "Rejected"
"""In the rejected queue of an ingress, or of a control queue, which may be looked at like an error queue."""
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f Z"
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
"""What an endpoint of NServiceBus counts: it begins anew with a message that is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMessage:
    """A message in the error queue, and the original as it would be sent again.

    `destination`: where it was to go; None: nothing says. `kind`: Refused, Rejected, Unroutable and the like; of
    another program's message the type of its exception. `reason`: for people. `failed_at`, `due_time`: None: nothing
    says. `failures`: attempts that failed; 0: nothing says. `size`: bytes of the original's body. `body` None: it was
    left out, as many were looked at. `obstacle`: why it cannot be sent again; None: it can.
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

    def without_body(self) -> "FailedMessage":
        """The same, smaller."""
        return replace(self, body=None)

    def original(self, destination: str | None = None) -> DelayedMessage:
        """The message as it was sent, for its destination, or another one.

        For another one its headers CC and BCC are renamed: the copies were meant beside its own destination.
        Raises InvalidMessageError, which says why, where it cannot be sent.
        """
        to = destination or self.destination
        if self.obstacle is not None:
            raise InvalidMessageError(self.obstacle)
        if to is None:
            raise InvalidMessageError("nothing says where it was to go; give a destination")
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
    """What `received`, out of the error queue, is a copy of.

    Whoever wrote it: delaystore's dispatchers, in any of their forms, an endpoint of NServiceBus, or somebody else, of
    whose message nothing may be known but its content.
    """
    ours = _is_ours(received.headers)
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
        failed_at=_time_of_failure(info.get(TIME_OF_FAILURE)),
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


def _is_ours(headers: Mapping[str, Any]) -> bool:
    return str(headers.get(EXCEPTION_TYPE, "")).startswith(_OURS)


def _unpacked(
    headers: dict[str, Any], properties: dict[str, Any], body: bytes
) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """With what is in text, or in the body's first line, in its place again; of a damaged row the text stays.

    Raises ValueError for what a dispatcher did not write.
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


def _time_of_failure(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _due_time(text: object) -> datetime | None:
    try:
        return utc(parse_time(str(text)), "the due time")
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
