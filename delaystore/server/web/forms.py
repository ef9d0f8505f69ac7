"""Forms of the pages: bodies of requests, read with limits, and their fields as filters and times."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from starlette.datastructures import ImmutableMultiDict, QueryParams
from starlette.requests import ClientDisconnect, Request

from delaystore.errors import InvalidMessageError
from delaystore.filters import ALL, MessageFilter
from delaystore.message import Position
from delaystore.server.web._site import site_of
from delaystore.server.web.errors import Refusal
from delaystore.server.web.pages import CSRF
from delaystore.stores.history import HistoryFilter
from delaystore.stores.records import Ending
from delaystore.text import parse_duration, parse_shift, parse_time

Fields = ImmutableMultiDict[str, Any]
_FilterT = TypeVar("_FilterT")
FILTERS: Final = ("destination", "since", "until", "id_prefix", "load", "header", "failing", "paused")
"""The fields of a filter."""
HISTORY: Final = ("message_id", "key", "destination", "since", "until", "outcome")
"""The fields of a filter of the history."""
_ANSWERS: Final[Mapping[str, bool | None]] = {"": None, "yes": True, "no": False, "true": True, "false": False}


def text_of(fields: Fields, name: str) -> str:
    """A field's value, without white space around; empty: nothing."""
    return id_of(fields, name).strip()


def id_of(fields: Fields, name: str = "id") -> str:
    """A field's value, exactly as it is: an id, or a destination, may begin with white space.

    Raises InvalidMessageError if the field is there twice.
    """
    given = fields.getlist(name) or [""]
    if len(given) > 1:
        raise InvalidMessageError(f"{name} is given twice; give it once")
    return given[0] if isinstance(given[0], str) else ""


def time_of(text: str, name: str) -> datetime | None:
    """ISO 8601, in UTC where it has no offset; None: empty. Raises InvalidMessageError, which calls it `name`."""
    if not text:
        return None
    try:
        found = parse_time(text)
    except ValueError as error:
        raise InvalidMessageError(f"{name} {text[:80]!r} {error}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


NEW_DUE_TIME: Final = ("delay", "at", "by", "time_zone")
"""The fields that say the new due time of a reschedule."""


def due_of(fields: Fields) -> dict[str, Any]:
    """The fields of a new due time as arguments of a reschedule; just one of `delay`, `at` and `by` is given.

    Raises InvalidMessageError, ConfigurationError.
    """
    delay, at, by, time_zone = (text_of(fields, name) for name in NEW_DUE_TIME)
    if sum(map(bool, (delay, at, by))) != 1:
        raise InvalidMessageError(
            "the new due time is missing or given twice; write a delay, such as 2h30m, or choose a time, or write how "
            "much later, such as 7d"
        )
    if time_zone and not by:
        raise InvalidMessageError("the time zone is for later by; leave it empty")
    if by:
        return {"by": parse_shift(by, "later by"), "time_zone": time_zone or None}
    return {"delay": parse_duration(delay, "the delay")} if delay else {"at": time_of(at, "the new due time")}


def filter_of(fields: Fields) -> MessageFilter:
    """The filter that the fields say; empty ones say nothing. Raises InvalidMessageError."""
    headers: dict[str, str] = {}
    for line in "\n".join(fields.getlist("header")).splitlines():
        if line.strip():
            name, value = _header(line)
            if name in headers:
                raise InvalidMessageError(f"header {name[:80]!r} is given twice; name each header once")
            headers[name] = value
    return MessageFilter(
        destination=text_of(fields, "destination") or None,
        since=time_of(text_of(fields, "since"), "due from"),
        until=time_of(text_of(fields, "until"), "due before"),
        id_prefix=text_of(fields, "id_prefix") or None,
        load=text_of(fields, "load") or None,
        headers=headers,
        failing=_answer(fields, "failing"),
        paused=_answer(fields, "paused"),
    )


def history_filter_of(fields: Fields) -> HistoryFilter:
    """The filter of the history that the fields say; empty ones say nothing. Raises InvalidMessageError."""
    given = {name: text_of(fields, name) for name in HISTORY}
    outcome, since, until = (given.pop(name) for name in ("outcome", "since", "until"))
    if outcome not in ("", *Ending):
        raise InvalidMessageError(f"outcome {outcome[:80]!r} is unknown; use one of {', '.join(Ending)}")
    return HistoryFilter(
        **{name: text or None for name, text in given.items()},
        since=time_of(since, "since"),
        until=time_of(until, "until"),
        ending=Ending(outcome) if outcome else None,
    )


def meant(fields: Fields, wanted: _FilterT) -> _FilterT:
    """The filter of a form that changes messages: `all` says yes where it says nothing. Raises InvalidMessageError."""
    if bool(wanted) is flag_of(fields, ALL):
        raise InvalidMessageError("the messages are not chosen; give either a filter, or all=yes for every message")
    return wanted


def flag_of(fields: Fields, name: str) -> bool:
    """Whether a field says yes; False also where it is not given. Raises InvalidMessageError."""
    return _answer(fields, name) or False


def query_of(wanted: MessageFilter) -> dict[str, Any]:
    """The inverse of `filter_of`."""
    document = wanted.as_dict()
    headers = document.pop("headers", {})
    answers = {name: "yes" if value else "no" for name, value in document.items() if isinstance(value, bool)}
    return {**document, **answers, "header": [f"{name}={value}" for name, value in headers.items()]}


def typed(fields: Fields, names: Sequence[str] = FILTERS) -> dict[str, str]:
    """The typed values, unchanged, to be shown again."""
    return {name: "\n".join(map(str, fields.getlist(name))) for name in names}


def position_of(text: str) -> Position | None:
    """Where a page goes on; None: at the beginning. Raises InvalidMessageError."""
    if not text:
        return None
    try:
        return Position.parse(text)
    except ValueError:
        raise InvalidMessageError(
            f"{text[:80]!r} is not a page's cursor; open the first page, and follow its links"
        ) from None


def whole_number(text: str, name: str, least: int, most: int) -> int:
    """`text` as a number from `least` to `most`. Raises InvalidMessageError, which calls it `name`."""
    digits = text.lstrip("0") or text[:1]
    if not text.isdecimal() or len(digits) > len(str(most)) or not least <= int(digits) <= most:
        raise InvalidMessageError(f"{name} must be a whole number from {least:,} to {most:,}, not {text[:20]!r}")
    return int(digits)


def _answer(fields: Fields, name: str) -> bool | None:
    text = text_of(fields, name)
    if text not in _ANSWERS:
        raise InvalidMessageError(f"{name} must be yes or no, not {text!r}")
    return _ANSWERS[text]


def _header(line: str) -> tuple[str, str]:
    name, mark, value = line.strip().partition("=")
    if not mark or not name:
        raise InvalidMessageError(f"header {line.strip()!r} is not of the form NAME=VALUE")
    return name, value


_SILENCE: Final = 30.0
"""Seconds that a client may take for the next part of a body."""


async def body_of(request: Request, largest: int) -> bytes:
    """The body; raises Refusal where it has more than `largest` bytes, without reading on, or does not come."""
    chunks: list[bytes] = []
    size = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_SILENCE) as limit:
            async for chunk in request.stream():
                limit.reschedule(loop.time() + _SILENCE)
                size += len(chunk)
                if size > largest:
                    raise Refusal(413, f"The request is larger than {largest:,} bytes.")
                chunks.append(chunk)
    except TimeoutError:
        raise Refusal(408, "The rest of the request did not arrive in time.", {"Connection": "close"}) from None
    except ClientDisconnect:  # no client reads the answer; it is no error to log
        raise Refusal(400, "The request ended before its body did.") from None
    return b"".join(chunks)


LARGEST: Final = 128 * 1024
"""Bytes of a form."""
_FORM: Final = "application/x-www-form-urlencoded"
_NOT_OURS: Final = (
    "Nothing was changed, because the form is old or is not from this page. Go back, reload the page, and try again."
)


def being_changed(message_id: str) -> str:
    """Who has a message that is claimed: a store cannot tell a dispatcher from another change, as of a double click."""
    return f"a dispatcher is sending message {message_id}, or another request is changing it"


def unknown(message_id: str) -> Refusal:
    """The answer where a message has no life to show."""
    return Refusal(
        404,
        f"Message {message_id!r} is not waiting, and neither the audit trail nor the history has an entry of it. "
        "See in the history how far it reaches back.",
    )


async def fields_of(request: Request) -> Fields:
    """The fields of the form that was sent. Raises Refusal unless it has the token that this browser and user got."""
    is_form = request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM
    fields = QueryParams(await body_of(request, LARGEST) if is_form else b"")
    if not site_of(request).pages.is_ours(request, fields.get(CSRF, "")):
        raise Refusal(403, _NOT_OURS)
    return fields
