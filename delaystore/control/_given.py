"""What a request gives: a JSON object, checked member by member, each mistake told in one sentence."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from delaystore.control._problems import ProblemCode, RequestError
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import due_after, waiting_until
from delaystore.strict_json import JsonError, parse_json
from delaystore.times import parse_duration, parse_instant

LARGEST: Final = 64 * 1024
"""Bytes of a request."""
_SHOWN: Final = 80
"""Characters of a value that an error repeats."""


class Given:
    """The members of a JSON object. Each method raises RequestError for what cannot be."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    @property
    def names(self) -> Sequence[str]:
        """Of its members, in their order."""
        return list(self._members)

    def only(self, names: Sequence[str]) -> None:
        """Refuse any other member: what is misspelt would be left out in silence."""
        for name in self._members:
            if name not in names:
                _refuse(f"unknown member {shown(name)}; known are {', '.join(names)}")

    def value(self, name: str) -> Any:
        """As it is; None: not given, or null."""
        return self._members.get(name)

    def due_time(self, now: datetime) -> datetime:
        """`at`, or `delay` from `now` on: exactly one is given."""
        if ("at" in self._members) is ("delay" in self._members):
            _refuse("give exactly one of at (a time with its offset) and delay (seconds, or text such as 2h30m)")
        try:
            found = self._at() if "at" in self._members else due_after(now, self._delay())
            return waiting_until(found, "the due time")
        except (ConfigurationError, InvalidMessageError) as error:
            raise RequestError(ProblemCode.BAD_TIME, cut(str(error))) from None

    def _at(self) -> datetime:
        text = self.value("at")
        if not isinstance(text, str):
            raise InvalidMessageError(f"at must be text such as 2027-01-31T09:00:00+01:00, not {shown(text)}")
        _check_length("at", text)
        return parse_instant(text, "at")

    def _delay(self) -> timedelta | float:
        found = self.value("delay")
        if isinstance(found, str):
            _check_length("delay", found)
            return parse_duration(found, "delay")
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise InvalidMessageError(f"delay must be seconds, or text such as 2h30m, not {shown(found)}")
        return found


def given_in(body: bytes) -> Given:
    """The JSON object in `body`; raises RequestError: it is too large, or none."""
    if len(body) > LARGEST:
        raise RequestError(
            ProblemCode.MALFORMED, f"the request has {len(body)} bytes; {LARGEST} are allowed: give one command"
        )
    try:
        members = parse_json(body)
    except JsonError as error:
        raise RequestError(ProblemCode.MALFORMED, cut(f"the request {error}")) from None
    if not isinstance(members, dict):
        raise RequestError(ProblemCode.MALFORMED, 'the request must be a JSON object, such as {"cancel": ID}')
    return Given(members)


def shown(value: object) -> str:
    """A value as an error repeats it: as JSON."""
    try:
        return cut(json.dumps(value), _SHOWN)
    except RecursionError:  # what could be read need not be writable, further down the stack
        return "what is nested so deeply"


def cut(text: str, most: int = 300) -> str:
    """`text`, or the first `most` characters of it."""
    return text if len(text) <= most else f"{text[:most]}..."


def _check_length(name: str, text: str) -> None:
    if len(text) > _SHOWN:
        raise InvalidMessageError(f"{name} is too long: {shown(text)}")


def _refuse(message: str) -> NoReturn:
    raise RequestError(ProblemCode.BAD_REQUEST, message)
