"""The commands, an object each: the fields of its requests, and how its result is answered."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from typing_extensions import override

from delaystore import documents
from delaystore.control._problems import ProblemCode, RequestError, cut
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.json_requests import (
    EITHER,
    DelayField,
    FieldTypeError,
    RequestFieldError,
    RequestFields,
    TimeField,
    delay_in,
    read_fields,
    shown,
    time_in,
)
from delaystore.message import DelayedMessage, check_key, check_message_id, due_after, waiting_until
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


class KeyName(RequestFields, frozen=True, forbid_unknown_fields=True):
    """A message by its key."""

    key: str


class ControlFields(RequestFields, frozen=True, kw_only=True):
    """The fields of any request."""

    version: int = 1


class CancelFields(ControlFields, frozen=True, kw_only=True):
    """Which message is cancelled."""

    cancel: str | KeyName


class RescheduleFields(ControlFields, frozen=True, kw_only=True):
    """Which message is rescheduled, and its new due time: one of both."""

    reschedule: str | KeyName
    at: TimeField | None = None
    delay: DelayField | None = None


class GetFields(ControlFields, frozen=True, kw_only=True):
    """Which message is looked up."""

    get: str | KeyName


Taken = TypeVar("Taken", bound=ControlFields)


class Command(ABC, Generic[Taken]):
    """A command about one message, which the field of its name names: by its message_id, or by `{"key": KEY}`."""

    name: ClassVar[str]
    fields: type[Taken]

    def read(self, given: Mapping[str, Any], asked: Asked) -> MessageRequest:
        """Return what the JSON object `given` asks for; raises RequestError."""
        try:
            fields = read_fields(self.fields, given)
            return self.request(fields, self._message(getattr(fields, self.name)), asked)
        except FieldTypeError as error:
            if error.name == self.name:
                sentence = f'{self.name} takes a message_id, or {{"key": KEY}}, as text; not {shown(given[self.name])}'
                raise RequestError(ProblemCode.BAD_REQUEST, sentence) from None
            code = ProblemCode.BAD_TIME if error.name in ("at", "delay") else ProblemCode.BAD_REQUEST
            raise RequestError(code, cut(str(error))) from None
        except RequestFieldError as error:
            raise RequestError(ProblemCode.BAD_REQUEST, cut(str(error))) from None

    @abstractmethod
    def request(self, fields: Taken, message: Mapping[str, Any], asked: Asked) -> MessageRequest:
        """Return the request about `message`, its message_id or key; raises RequestError."""

    def answer(self, result: RequestResult) -> dict[str, Any]:
        """Return what is answered."""
        return {"outcome": result.outcome.value, "message_id": result.message_id}

    def _message(self, named: str | KeyName) -> dict[str, Any]:
        try:
            if isinstance(named, KeyName):
                check_key(named.key)
                return {"key": named.key}
            check_message_id(named)
        except InvalidMessageError as error:
            raise RequestError(ProblemCode.BAD_ID, cut(f"{self.name}: {error}")) from None
        return {"message_id": named}


class Cancel(Command[CancelFields]):
    """Delete a waiting message."""

    name = "cancel"
    fields = CancelFields

    @override
    def request(self, fields: CancelFields, message: Mapping[str, Any], asked: Asked) -> MessageRequest:
        return CancelRequest(**message, by=asked.by)


class Reschedule(Command[RescheduleFields]):
    """Give a waiting message a new due time."""

    name = "reschedule"
    fields = RescheduleFields

    @override
    def request(self, fields: RescheduleFields, message: Mapping[str, Any], asked: Asked) -> MessageRequest:
        if (fields.at is None) is (fields.delay is None):
            raise RequestError(ProblemCode.BAD_REQUEST, EITHER)
        try:
            if fields.delay is None:
                assert fields.at is not None
                found = time_in(fields.at, "at")
            else:
                found = due_after(asked.now, delay_in(fields.delay, "delay"))
            due_time = waiting_until(found, "the due time")
        except (ConfigurationError, InvalidMessageError) as error:
            raise RequestError(ProblemCode.BAD_TIME, cut(str(error))) from None
        return RescheduleRequest(**message, by=asked.by, at=due_time)

    @override
    def answer(self, result: RequestResult) -> dict[str, Any]:
        return {**super().answer(result), "due_time": documents.instant(result.due_time)}


class Get(Command[GetFields]):
    """Look a waiting message up. `with_bodies`: whether the answer holds its body."""

    name = "get"
    fields = GetFields

    def __init__(self, *, with_bodies: bool) -> None:
        self._longest_body = LONGEST_BODY if with_bodies else -1

    @override
    def request(self, fields: GetFields, message: Mapping[str, Any], asked: Asked) -> MessageRequest:
        return LookUpRequest(**message, by=asked.by)

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


def commands(*, with_bodies: bool) -> Mapping[str, Command[Any]]:
    """All that are about a message, by name."""
    return {command.name: command for command in (Cancel(), Reschedule(), Get(with_bodies=with_bodies))}
