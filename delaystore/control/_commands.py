"""The commands, an object each: what a request of that command gives, and how its result is answered."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from typing_extensions import override

from delaystore import documents
from delaystore.control._given import Given, cut, shown
from delaystore.control._problems import ProblemCode, RequestError
from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage, check_key, check_message_id
from delaystore.operations.changes import (
    CancelRequest,
    LookUpRequest,
    MessageRequest,
    RequestResult,
    RescheduleRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """In whose name a request is made, and when, by the store's clock."""

    by: str
    now: datetime


LONGEST_BODY: Final = 2 * 2**20
"""Bytes of a body that is answered: as JSON it may take six times as many, and RabbitMQ takes 16 MiB."""


class Command(ABC):
    """A command about one message, which the member of its name names: by its message_id, or by `{"key": KEY}`."""

    name: ClassVar[str]
    members: ClassVar[tuple[str, ...]] = ()
    """Those that it takes beside that one."""

    @abstractmethod
    def request(self, given: Given, asked: Asked) -> MessageRequest:
        """What `given` asks for; raises RequestError."""

    def answer(self, result: RequestResult) -> dict[str, Any]:
        """What is answered."""
        return {"outcome": result.outcome.value, "message_id": result.message_id}

    def _message(self, given: Given) -> dict[str, Any]:
        """By what the message is named."""
        named = given.value(self.name)
        try:
            if isinstance(named, str):
                check_message_id(named)
                return {"message_id": named}
            if isinstance(named, dict) and list(named) == ["key"] and isinstance(named["key"], str):
                check_key(named["key"])
                return {"key": named["key"]}
        except InvalidMessageError as error:
            raise RequestError(ProblemCode.BAD_ID, cut(f"{self.name}: {error}")) from None
        raise RequestError(
            ProblemCode.BAD_REQUEST, f'{self.name} takes a message_id, or {{"key": KEY}}, as text; not {shown(named)}'
        )


class Cancel(Command):
    """Delete a waiting message."""

    name = "cancel"

    @override
    def request(self, given: Given, asked: Asked) -> MessageRequest:
        return CancelRequest(**self._message(given), by=asked.by)


class Reschedule(Command):
    """Give a waiting message a new due time."""

    name = "reschedule"
    members = ("at", "delay")

    @override
    def request(self, given: Given, asked: Asked) -> MessageRequest:
        return RescheduleRequest(**self._message(given), by=asked.by, at=given.due_time(asked.now))

    @override
    def answer(self, result: RequestResult) -> dict[str, Any]:
        return {**super().answer(result), "due_time": documents.instant(result.due_time)}


class Get(Command):
    """Look a waiting message up. `with_bodies`: whether the answer holds its body."""

    name = "get"

    def __init__(self, *, with_bodies: bool) -> None:
        self._longest_body = LONGEST_BODY if with_bodies else -1

    @override
    def request(self, given: Given, asked: Asked) -> MessageRequest:
        return LookUpRequest(**self._message(given), by=asked.by)

    @override
    def answer(self, result: RequestResult) -> dict[str, Any]:
        return {**super().answer(result), "message": None if result.message is None else self._shown(result.message)}

    def _shown(self, message: DelayedMessage) -> dict[str, Any]:
        """As the JSON API shows it; without a body that is too long, or is to be hidden."""
        if len(message.body) <= self._longest_body:
            return documents.waiting(message)
        shown = documents.waiting(replace(message, body=b""))
        del shown["body"]
        return {**shown, "size": len(message.body)}


PING: Final = "ping"
"""The command that is about no message: it takes an empty object."""


def commands(*, with_bodies: bool) -> Mapping[str, Command]:
    """All that are about a message, by name."""
    return {command.name: command for command in (Cancel(), Reschedule(), Get(with_bodies=with_bodies))}
