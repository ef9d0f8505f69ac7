"""Requests and answers of control queues as bytes, and the commands they name; no connection is used here."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

import msgspec
from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError, InvalidScheduleError, UnknownScheduleError
from delaystore.message import DelayedMessage, check_key, check_message_id, due_after, waiting_until
from delaystore.operations.changes import (
    Actor,
    CancelRequest,
    LookUpRequest,
    MessageRequest,
    RequestResult,
    RescheduleRequest,
    new_due_time,
    reschedule_action,
)
from delaystore.operations.json_requests import (
    ONE_OF_THREE,
    DelayField,
    FieldTypeError,
    RequestFieldError,
    RequestFields,
    ShiftField,
    TimeField,
    ZoneField,
    new_due_time_in,
    read_fields,
    shown,
    time_in,
)
from delaystore.schedules import Schedule, Schedules
from delaystore.schedules.definition import check_name
from delaystore.stores import documents
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import Way
from delaystore.text import JsonError, parse_json


class ProblemCode(StrEnum):
    """By which a program knows it; part of the protocol."""

    MALFORMED = "malformed"
    """It is no JSON object, or too large."""
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_COMMAND = "unknown_command"
    BAD_REQUEST = "bad_request"
    """It has a member too many, or too few, or one of the wrong type."""
    BAD_ID = "bad_id"
    """It names no possible message_id, key or schedule."""
    BAD_TIME = "bad_time"
    REFUSED = "refused"
    """The store works, and refuses this request."""


class RequestError(Exception):
    """A request that cannot be done. `more`: further members of the answer's `error`."""

    def __init__(self, code: ProblemCode, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more

    def document(self) -> dict[str, Any]:
        """The answer's `error`."""
        return {"code": self.code.value, "message": str(self), **self.more}


def cut(text: str, most: int = 300) -> str:
    """Return `text`, or its first `most` characters."""
    return text if len(text) <= most else f"{text[:most]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
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
    """Which message is rescheduled, and its new due time, or the span by which it moves: one of `at`, `delay`, `by`."""

    reschedule: str | KeyName
    at: TimeField | None = None
    delay: DelayField | None = None
    by: ShiftField | None = None
    time_zone: ZoneField | None = None


class GetFields(ControlFields, frozen=True, kw_only=True):
    """Which message is looked up."""

    get: str | KeyName


Taken = TypeVar("Taken", bound=ControlFields)


class ControlCommand(Generic[Taken]):
    """A command about one message, which the field of its name names: by its message_id, or by `{"key": KEY}`."""

    name: ClassVar[str]
    fields: type[Taken]
    request_type: ClassVar[type[MessageRequest]]

    def read(self, given: Mapping[str, Any], asked: RequestContext) -> MessageRequest:
        """Return the request of the JSON object `given`; raises RequestError."""
        try:
            fields = read_fields(self.fields, given)
            return self.request(fields, self._message(getattr(fields, self.name)), asked)
        except FieldTypeError as error:
            if error.name == self.name:
                sentence = f'{self.name} takes a message_id, or {{"key": KEY}}, as text; not {shown(given[self.name])}'
                raise RequestError(ProblemCode.BAD_REQUEST, sentence) from None
            raise _wrong_field(error) from None
        except RequestFieldError as error:
            raise _wrong_field(error) from None

    def request(self, fields: Taken, message: Mapping[str, Any], asked: RequestContext) -> MessageRequest:  # noqa: ARG002
        """Return the request about `message`, its message_id or key; raises RequestError."""
        return self.request_type(**message, by=asked.by)

    def answer(self, result: RequestResult) -> dict[str, Any]:
        """Return the answer."""
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


class Cancel(ControlCommand[CancelFields]):
    """Delete a waiting message."""

    name = "cancel"
    fields = CancelFields
    request_type = CancelRequest


class Reschedule(ControlCommand[RescheduleFields]):
    """Give a waiting message a new due time."""

    name = "reschedule"
    fields = RescheduleFields
    request_type = RescheduleRequest

    @override
    def request(self, fields: RescheduleFields, message: Mapping[str, Any], asked: RequestContext) -> MessageRequest:
        if sum(each is not None for each in (fields.at, fields.delay, fields.by)) != 1:
            raise RequestError(ProblemCode.BAD_REQUEST, ONE_OF_THREE)

        def due_time(delay: timedelta | float | None, at: datetime | None) -> datetime:
            found = due_after(asked.now, delay) if at is None and delay is not None else at
            return waiting_until(found, "the due time")

        try:
            when = new_due_time_in(fields.delay, fields.at, fields.by, fields.time_zone)
            new = new_due_time(due_time, **when)
        except (ConfigurationError, InvalidMessageError) as error:
            raise RequestError(ProblemCode.BAD_TIME, cut(str(error))) from None
        return RescheduleRequest(**message, by=asked.by, at=new, action=reschedule_action(when["delay"]))

    @override
    def answer(self, result: RequestResult) -> dict[str, Any]:
        return {**super().answer(result), "due_time": documents.instant(result.due_time)}


class Get(ControlCommand[GetFields]):
    """Look a message up, and its history. `with_bodies`: whether the answer holds the body of one that waits."""

    name = "get"
    fields = GetFields
    request_type = LookUpRequest

    def __init__(self, *, with_bodies: bool) -> None:
        self._longest_body = LONGEST_BODY if with_bodies else -1

    @override
    def answer(self, result: RequestResult) -> dict[str, Any]:
        message = None if result.message is None else self._shown(result.message)
        history = None if result.history is None else [each.as_dict() for each in result.history]
        return {**super().answer(result), "message": message, "history": history}

    def _shown(self, message: DelayedMessage) -> dict[str, Any]:
        """As the JSON API shows it; without a body that is too long, or is to be hidden."""
        if len(message.body) <= self._longest_body:
            return documents.waiting(message)
        shown = documents.waiting(replace(message, body=b""))
        del shown["body"]
        return {**shown, "size": len(message.body)}


def _wrong_field(error: RequestFieldError) -> RequestError:
    is_time = isinstance(error, FieldTypeError) and error.name in ("at", "delay", "by", "time_zone")
    return RequestError(ProblemCode.BAD_TIME if is_time else ProblemCode.BAD_REQUEST, cut(str(error)))


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A request about a recurring schedule, read and not done yet.

    Attributes:
        name: The schedule.
        by: Who asks.
        work: Does it, and returns the members of the answer. Raises InvalidScheduleError, UnknownScheduleError.
        wrong: The code of the answer if the schedule refuses it.

    """

    name: str
    by: str
    work: Callable[[Schedules], Mapping[str, Any]]
    wrong: ProblemCode

    def answer(self, schedules: Schedules) -> "Answer":
        """Do it in a transaction of its own, and return the answer. Raises StoreError, ConfigurationError."""
        known = {"outcome": ManagementOutcome.DONE.value, "schedule": self.name}
        try:
            found = self.work(schedules.acting(Actor(by=self.by, way=Way.CONTROL)))
        except UnknownScheduleError:
            found = {"outcome": ManagementOutcome.NOT_FOUND.value}
        except InvalidScheduleError as error:
            return problem_answer(RequestError(self.wrong, cut(str(error))))
        return Answer(_encoded({**known, **found}))


class ScheduleCommand:
    """A command about a recurring schedule.

    Args:
        name: The command. The member of this name has the schedule's name, or its document.
        work: Does it, with the schedules, the schedule's name or the schedule, and the member `at` if there is one.
        kind: The type of the member: text, or an object.
        has_time: Whether there is a member `at`, which is required.

    """

    def __init__(
        self, name: str, work: Callable[..., Mapping[str, Any]], kind: type[Any] = str, *, has_time: bool = False
    ) -> None:
        times = [("at", TimeField)] if has_time else []
        self.name: Final = name
        self._work = work
        struct = msgspec.defstruct(name, [(name, kind), *times], bases=(ControlFields,), frozen=True, kw_only=True)
        self._fields = cast("type[ControlFields]", struct)
        self._wrong = ProblemCode.BAD_TIME if has_time else ProblemCode.BAD_REQUEST

    def read(self, given: Mapping[str, Any], asked: RequestContext) -> ScheduleRequest:
        """Return the request of the JSON object `given`; raises RequestError."""
        try:
            fields: Any = read_fields(self._fields, given)
            named = getattr(fields, self.name)
            schedule = named if isinstance(named, str) else Schedule.of_document(named)
            name = schedule if isinstance(schedule, str) else schedule.name
            at = [time_in(fields.at, "at")] if hasattr(fields, "at") else []
            check_name(name)
        except RequestFieldError as error:
            raise _wrong_field(error) from None
        except InvalidScheduleError as error:
            code = ProblemCode.BAD_ID if isinstance(named, str) else ProblemCode.BAD_REQUEST
            raise RequestError(code, cut(f"{self.name}: {error}")) from None
        except InvalidMessageError as error:
            raise RequestError(ProblemCode.BAD_TIME, cut(str(error))) from None
        return ScheduleRequest(name, asked.by, lambda schedules: self._work(schedules, schedule, *at), self._wrong)


def _outcome(outcome: ManagementOutcome) -> Mapping[str, Any]:
    return {"outcome": outcome.value}


def _deleted(schedules: Schedules, name: str) -> Mapping[str, Any]:
    return _outcome(ManagementOutcome.DONE if schedules.delete(name) else ManagementOutcome.NOT_FOUND)


def _skipped(schedules: Schedules, name: str, at: datetime) -> Mapping[str, Any]:
    return _outcome(ManagementOutcome.DONE if schedules.skip(name, at) else ManagementOutcome.BEING_DISPATCHED)


_ABOUT_SCHEDULES: Final = (
    ScheduleCommand("put_schedule", lambda on, schedule: {"result": on.put_schedule(schedule).value}, dict[str, Any]),
    ScheduleCommand("delete_schedule", _deleted),
    ScheduleCommand("pause_schedule", lambda on, name: {"changed": on.pause(name)}),
    ScheduleCommand("resume_schedule", lambda on, name: {"changed": on.resume(name)}),
    ScheduleCommand("skip_schedule", _skipped, has_time=True),
    ScheduleCommand("trigger_schedule", lambda on, name: {"message_id": on.trigger(name)}),
)
PING: Final = "ping"
"""The command that is about no message: it takes an empty object."""
AnyCommand = ControlCommand[Any] | ScheduleCommand


def commands(*, with_bodies: bool, with_schedules: bool) -> Mapping[str, AnyCommand]:
    """All that are about a message or a schedule, by name."""
    found: Sequence[AnyCommand] = (Cancel(), Reschedule(), Get(with_bodies=with_bodies))
    return {command.name: command for command in (*found, *(_ABOUT_SCHEDULES if with_schedules else ()))}


LARGEST: Final = 64 * 1024
"""Bytes of a request."""
VERSIONS: Final = (1,)
"""Known versions; a request without one is of the last."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, as JSON. `problem`: why nothing was done, for people; None: the request was done."""

    body: bytes
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request about a message, read and not done yet."""

    command: ControlCommand[Any]
    request: MessageRequest

    def answer(self, result: RequestResult) -> Answer:
        """The answer to it, once it is done."""
        return Answer(_encoded(self.command.answer(result)))


class Protocol:
    """Reads requests for one endpoint.

    `with_bodies`: whether messages are answered with their bodies. `with_schedules`: whether schedules are changed.
    """

    def __init__(self, endpoint: str, *, with_bodies: bool = True, with_schedules: bool = True) -> None:
        self._endpoint = endpoint
        self._commands = commands(with_bodies=with_bodies, with_schedules=with_schedules)

    def read(self, body: bytes, asked: RequestContext) -> ReadRequest | ScheduleRequest | Answer:
        """The request in `body`; an Answer where it is known already, as for a body that is no request."""
        try:
            given = _object_in(body)
            self._check_version(given)
            name = self._command_of(given)
            if name == PING:
                return self._ping(given, asked)
            command = self._commands[name]
            if isinstance(command, ScheduleCommand):
                return command.read(given, asked)
            return ReadRequest(command, command.read(given, asked))
        except RequestError as error:
            return problem_answer(error)

    @property
    def _names(self) -> Sequence[str]:
        return [*self._commands, PING]

    def _check_version(self, given: Mapping[str, Any]) -> None:
        version = given.get("version", VERSIONS[-1])
        if type(version) is not int or version not in VERSIONS:
            known = ", ".join(map(str, VERSIONS))
            raise RequestError(
                ProblemCode.UNKNOWN_VERSION, f"version {shown(version)} is unknown; known is {known}", known=VERSIONS
            )

    def _command_of(self, given: Mapping[str, Any]) -> str:
        found = [name for name in given if name in self._names]
        if len(found) > 1:
            raise RequestError(ProblemCode.BAD_REQUEST, f"give one command a message, not {' and '.join(found)}")
        if found:
            return found[0]
        others = [shown(name) for name in given if name != "version"][:3]
        what = f"no command in {', '.join(others)}" if others else "a command is missing"
        raise RequestError(
            ProblemCode.UNKNOWN_COMMAND, f"{what}; known are {', '.join(self._names)}", known=self._names
        )

    def _ping(self, given: Mapping[str, Any], asked: RequestContext) -> Answer:
        others = set(given) - {"version", PING}
        if others:
            raise RequestError(ProblemCode.BAD_REQUEST, f"unknown field {shown(min(others))}; ping takes none")
        if given[PING] != {}:
            raise RequestError(ProblemCode.BAD_REQUEST, f"ping takes {{}}, not {shown(given[PING])}")
        return Answer(
            _encoded(
                {
                    "outcome": ManagementOutcome.DONE.value,
                    "endpoint": self._endpoint,
                    "now": documents.instant(asked.now),
                    "versions": VERSIONS,
                    "commands": self._names,
                }
            )
        )


def _object_in(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object in `body`; raises RequestError: it is too large, or none."""
    if len(body) > LARGEST:
        raise RequestError(
            ProblemCode.MALFORMED, f"the request has {len(body)} bytes; {LARGEST} are allowed: give one command"
        )
    try:
        given = parse_json(body)
    except JsonError as error:
        raise RequestError(ProblemCode.MALFORMED, cut(f"the request {error}")) from None
    if not isinstance(given, dict):
        raise RequestError(ProblemCode.MALFORMED, 'the request must be a JSON object, such as {"cancel": ID}')
    return given


def problem_answer(error: RequestError) -> Answer:
    """The answer to a request that cannot be done."""
    return Answer(_encoded({"error": error.document()}), str(error))


def _encoded(document: dict[str, Any]) -> bytes:
    """As ASCII, so that no character can be in an answer's way."""
    return json.dumps({"version": VERSIONS[-1], **document}, separators=(",", ":")).encode()
