"""Answers of the API as structs, from which its document is made.

`stores.documents` makes the answers of dataclasses; the structs of these are derived from the same dataclasses.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delaystore.filters import ALL, MessageFilter
from delaystore.message import FailedAttempt
from delaystore.operations import error_queue, failed_message
from delaystore.operations.changes import AuditKept
from delaystore.schedules import PutResult, ScheduleChanges, ScheduleState
from delaystore.stores import history, records

NaturalNumber = Annotated[int, Meta(ge=0)]
Everything = Annotated[bool, Meta(description="Everything; stands alone.", extra_json_schema={"const": True})]
Text = Annotated[str, Meta(description="As text; left out if the body is not text, or bodies are hidden.")]


def struct(
    name: str,
    about: str,
    fields: Mapping[str, Any],
    base: type[msgspec.Struct] = msgspec.Struct,
    *,
    strict: bool = False,
) -> type[msgspec.Struct]:
    """Return a struct with fields of these types; a field that may be unset may be left out."""
    required = [(each, kind) for each, kind in fields.items() if UnsetType not in get_args(kind)]
    optional = [(each, kind, UNSET) for each, kind in fields.items() if UnsetType in get_args(kind)]
    about_it = {"__doc__": about}
    return msgspec.defstruct(
        name, [*required, *optional], bases=(base,), namespace=about_it, kw_only=True, forbid_unknown_fields=strict
    )


def answer_of(
    of: Any, name: str = "", fields: Mapping[str, Any] = MappingProxyType({}), without: Sequence[str] = ()
) -> type[msgspec.Struct]:
    """Return the struct of the document that `documents.record` makes of a dataclass.

    Args:
        of: The dataclass.
        name: Its name in the document. Default: its own.
        fields: The types of further fields, and of fields that are not as `documents.record` has them.
        without: Fields that the answer has not.

    """
    hints = get_type_hints(of)
    own = {each.name: _as_json(hints[each.name]) for each in dataclasses.fields(of) if each.name not in without}
    about = (of.__doc__ or "").partition("\n")[0]
    return struct(name or of.__name__, about, {**own, **fields})


def filter_of(of: type[Any], name: str, about: str) -> type[msgspec.Struct]:
    """Return the struct of a filter's `as_dict`: the given conditions, or that everything is meant."""
    hints = get_type_hints(of)
    given = {
        each.name: _union(kind for kind in (*_parts(_as_json(hints[each.name])), UnsetType) if kind is not NoneType)
        for each in dataclasses.fields(of)
    }
    return struct(name, about, {**given, ALL: Everything | UnsetType}, strict=True)


def many(kind: Any) -> Any:
    """Return the type of a list of these."""
    return GenericAlias(list, (kind,))


def _as_json(kind: Any) -> Any:
    """Return the type of a value of this type in JSON, as `documents.field` has it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(map(_as_json, parts))
    if origin is Sequence:
        return many(_as_json(parts[0]))
    if origin is Mapping:
        return GenericAlias(dict, (str, _as_json(parts[1])))
    if kind is MessageFilter:
        return FilterRequest
    if kind is timedelta:
        return float
    if kind is int:
        return NaturalNumber
    return answer_of(kind) if dataclasses.is_dataclass(kind) else kind


def _parts(kind: Any) -> Sequence[Any]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _union(kinds: Any) -> Any:
    return reduce(or_, kinds)


ProblemAnswer = struct(
    "Problem",
    "Why a call failed (RFC 9457).",
    {
        "title": str,
        "status": NaturalNumber,
        "detail": str,
    },
)


class Summary(msgspec.Struct):
    """A waiting message in a list."""

    message_id: str
    destination: str
    due_time: datetime
    next_attempt: datetime | None
    not_after: datetime | None
    failure_count: NaturalNumber
    size: NaturalNumber
    key: str | None


Message = struct(
    "Message",
    "A waiting message.",
    {
        "headers": dict[str, Any],
        "properties": dict[str, Any],
        "parked": bool,
        "failures": many(answer_of(FailedAttempt, "Failure")),
        "body": Text | UnsetType,
        "body_base64": Annotated[str, Meta(description="If the body is not text.")] | UnsetType,
    },
    Summary,
)


class MessageId(msgspec.Struct):
    """The message that was changed."""

    message_id: str


class Stored(MessageId):
    """The message that waits, and whether this call stored it."""

    stored: bool


class MessagePage(msgspec.Struct):
    """A page of messages; `next`: the cursor of the next page."""

    messages: list[Summary]
    next: str | None


FilterRequest = filter_of(MessageFilter, "Filter", "Messages that match every given member; since <= due time < until.")
ErrorFilterRequest = filter_of(
    failed_message.ErrorFilter,
    "ErrorFilter",
    "Failed messages that match every given member. An empty destination: nothing says where a message was to go. A "
    "reason: that of a group, ids and numbers aside.",
)


class PreviewedMessage(Summary):
    """A message that would be changed; of a reschedule with its new due time, which is null if it is out of range."""

    new_due_time: datetime | UnsetType | None = UNSET


Previewed = struct(
    "Previewed",
    "How many messages match, and the first of them; of a reschedule with the due times before and after it.",
    {
        "count": NaturalNumber,
        "complete": bool,
        "sample": many(PreviewedMessage),
        **dict.fromkeys(("first_due", "new_first_due", "last_due", "new_last_due"), datetime | UnsetType | None),
    },
)


OperationAnswer = answer_of(
    records.Operation,
    fields={
        "runs_here": Annotated[
            bool, Meta(description="False: the process that answers does not run it; if no process does, resume it.")
        ],
        "problem": Annotated[str | None, Meta(description="Why the process that answers does not run it any more.")],
    },
    without=("after",),  # where it stands is its own affair
)
OperationsAnswer = struct("Operations", "The last operations.", {"operations": many(OperationAnswer)})
DestinationAnswer = answer_of(
    records.Destination,
    "DestinationState",
    {"changed": datetime | None, "by": str | None, "waiting": NaturalNumber | None, "rate": float | None},
)
Destinations = struct("Destinations", "All known destinations.", {"destinations": many(DestinationAnswer)})


LoadAnswer = answer_of(records.Load)
LoadsAnswer = struct("Loads", "The last loads.", {"loads": many(LoadAnswer)})


ScheduleAnswer = answer_of(
    ScheduleState,
    "Schedule",
    {
        **dict.fromkeys(("name", "destination"), str),
        **dict.fromkeys(("cron", "at", "zone", "catch_up", "if_waiting", "body_base64"), str | UnsetType),
        **dict.fromkeys(("headers", "properties"), dict[str, Any] | UnsetType),
        **dict.fromkeys(("starts", "ends"), datetime | UnsetType),
        **dict.fromkeys(("every", "max_late", "jitter"), float | UnsetType),
        "body": Text | UnsetType,
        "max_runs": NaturalNumber | UnsetType,
        "both_days": bool | UnsetType,
    },
    without=("schedule",),
)
SchedulesAnswer = struct("Schedules", "A page of schedules.", {"schedules": many(ScheduleAnswer), "next": str | None})
ScheduleChangesAnswer = answer_of(ScheduleChanges)
SchedulePut = struct("SchedulePut", "The result of a PUT.", {"name": str, "result": PutResult})
ScheduleChanged = struct("ScheduleChanged", "Whether this call changed it.", {"name": str, "changed": bool})
Backfilled = struct("Backfilled", "How many occurrences were made.", {"count": NaturalNumber})
ScheduleTime = struct("ScheduleTime", "A time, also in the schedule's zone.", dict.fromkeys(("utc", "local"), datetime))
ScheduleTimes = struct("ScheduleTimes", "Times of a schedule.", {"zone": str, "times": many(ScheduleTime)})


class Limited(msgspec.Struct):
    """The limit of a destination in messages per second."""

    destination: str
    max_rate: float | None


class Changed(msgspec.Struct):
    """How many messages were changed so far."""

    count: NaturalNumber
    complete: Annotated[bool, Meta(description="False: still in progress in the background.")]


ChangeAnswer = answer_of(records.AuditEntry, "Change")
ChangesAnswer = answer_of(AuditKept, "Changes", {"changes": many(ChangeAnswer)})


HistoryEntryAnswer = answer_of(
    history.HistoryEntry, fields={"outcome": records.Ending, "late": float | None}, without=("ending",)
)
HistoryAnswer = answer_of(history.HistoryStatus, "History", {"history": many(HistoryEntryAnswer), "next": str | None})
LifeAnswer = struct(
    "MessageLife",
    "All that is known of one message.",
    {
        "message_id": str,
        "sent": Annotated[datetime | None, Meta(description="When its id was made; null: the id does not tell.")],
        "waiting": Summary | None,
        "changes": many(ChangeAnswer),
        "history": many(HistoryEntryAnswer),
    },
)


OverviewAnswer = struct(
    "Overview",
    "The endpoint's state.",
    {
        "endpoint": str,
        "now": datetime | None,
        "wrong": list[str],
        "waiting": NaturalNumber | None,
        "exact": Annotated[bool | None, Meta(description="False: `waiting` is an estimate.")],
        "first_due": datetime | None,
        "oldest_overdue": float | None,
        "failing": Annotated[NaturalNumber | None, Meta(description="Counted up to 10,000, as is `parked`.")],
        "parked": NaturalNumber | None,
        "paused": list[Any] | None,
        "error_queue": str,
        "error_queue_depth": NaturalNumber | None,
        "error_queue_seen": Annotated[datetime | None, Meta(description="When the broker said so.")],
        "destinations": list[Any] | None,
        "paused_loads": list[str] | None,
        "operations": list[Any] | None,
        "dispatchers": list[Any] | None,
        "ingresses": list[Any] | None,
        "rate": float | None,
        "lateness": dict[str, Any] | None,
        "expired": Annotated[NaturalNumber | None, Meta(description="In the last hour.")],
        "activity": list[Any] | None,
        "history": dict[str, Any] | None,
        "store": Annotated[
            str | None, Meta(description="Why the store does not answer or cannot be written; null: it can.")
        ],
        "operable": bool | None,
    },
)


HealthAnswer = struct(
    "Health",
    "Whether the endpoint is healthy.",
    {
        "healthy": bool,
        "problems": list[str],
        "warnings": list[str],
    },
)


FailedMessageAnswer = answer_of(
    failed_message.FailedMessage,
    fields={
        "headers": dict[str, Any] | UnsetType,
        "properties": dict[str, Any] | UnsetType,
        "body": str | UnsetType,
        "body_base64": str | UnsetType,
    },
)
FailedPage = struct(
    "FailedPage",
    "A page of the error queue; `next_skip`: where the next page begins.",
    {"messages": many(FailedMessageAnswer), "depth": NaturalNumber, "next_skip": NaturalNumber | None},
)
ErrorGroupsAnswer = answer_of(error_queue.ErrorGroups)


class Job(msgspec.Struct):
    """A background job of the process that is asked."""

    job_id: str
    about: str
    by: str
    done: NaturalNumber
    running: bool
    result: str | None
    problem: str | None
