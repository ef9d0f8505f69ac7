"""Answers of the API as structs, of which its document is made; `stores.documents` makes the answers."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Count = Annotated[int, Meta(ge=0)]
Everything = Annotated[bool, Meta(description="Everything; stands alone.", extra_json_schema={"const": True})]
Text = Annotated[str, Meta(description="As text; left out where it is none, and where bodies are hidden.")]


class Problem(msgspec.Struct):
    """Why a call was not done (RFC 9457)."""

    title: str
    status: Count
    detail: str


class Summary(msgspec.Struct):
    """A waiting message in a list."""

    message_id: str
    destination: str
    due_time: datetime
    next_attempt: datetime | None
    failure_count: Count
    size: Count
    key: str | None


class Failure(msgspec.Struct):
    """A failed attempt to forward a message."""

    at: datetime
    kind: str
    reason: str


class Message(Summary, kw_only=True):
    """A waiting message."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    parked: bool
    failures: list[Failure]
    body: Text | UnsetType = UNSET
    body_base64: Annotated[str, Meta(description="Where it is no text.")] | UnsetType = UNSET


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


class Filter(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that meet all that is given; since <= due time < until."""

    destination: str | UnsetType = UNSET
    since: datetime | UnsetType = UNSET
    until: datetime | UnsetType = UNSET
    id_prefix: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    failing: bool | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    all: Everything | UnsetType = UNSET


class Previewed(msgspec.Struct):
    """How many messages match, and the first of them."""

    count: Count
    complete: bool
    sample: list[Summary]


class Operation(msgspec.Struct):
    """An operation on many messages."""

    operation_id: str
    kind: Literal["cancel", "reschedule"]
    wanted: Filter
    by: str
    began: datetime
    due_time: datetime | None
    ended: datetime | None
    state: Literal["running", "done", "abandoned"]
    examined: Count
    changed: Count
    held: Count
    held_ids: list[str]


class Operations(msgspec.Struct):
    """The last operations."""

    operations: list[Operation]


class DestinationState(msgspec.Struct):
    """A destination, and what is paused or limited there."""

    name: str
    waiting: Count | None
    rate: float | None
    paused: bool
    paused_until: datetime | None
    resuming: bool
    max_rate: float | None
    changed: datetime | None
    by: str | None


class Destinations(msgspec.Struct):
    """All known destinations."""

    destinations: list[DestinationState]


class Limited(msgspec.Struct):
    """The limit of a destination in messages per second."""

    destination: str
    max_rate: float | None


class Changed(msgspec.Struct):
    """How many messages were changed so far."""

    count: Count
    complete: Annotated[bool, Meta(description="False: it goes on in the background.")]


class Change(msgspec.Struct):
    """An entry of the audit trail."""

    at: datetime
    by: str
    action: str
    about: str
    count: Count
    way: Annotated[str | None, Meta(description="By which way, such as cli, web, api or control.")]
    message_id: str | None
    key: str | None
    destination: str | None
    wanted: Annotated[dict[str, Any] | None, Meta(description="The filter, where many messages were changed.")]
    operation_id: str | None
    old_due_time: datetime | None
    new_due_time: datetime | None


class Changes(msgspec.Struct):
    """The last entries of the audit trail."""

    changes: list[Change]
    audit: Annotated[
        list[str],
        Meta(description="Whose changes are noted, as dispatchers say: operators, or all. Empty: none runs."),
    ]
    retention: Annotated[float | None, Meta(description="Seconds for which changes are kept.")]


class Overview(msgspec.Struct):
    """How the endpoint is doing."""

    endpoint: str
    now: datetime | None
    wrong: list[str]
    waiting: Count | None
    exact: Annotated[bool | None, Meta(description="False: `waiting` is an estimate.")]
    first_due: datetime | None
    oldest_overdue: float | None
    failing: Annotated[Count | None, Meta(description="Counted up to 10,000, as is `parked`.")]
    parked: Count | None
    paused: list[Any] | None
    error_queue: str
    error_queue_depth: Count | None
    error_queue_seen: Annotated[datetime | None, Meta(description="When the broker said so.")]
    destinations: list[Any] | None
    operations: list[Any] | None
    dispatchers: list[Any] | None
    ingresses: list[Any] | None
    rate: float | None
    lateness: dict[str, Any] | None
    activity: list[Any] | None
    store: Annotated[str | None, Meta(description="Why it does not answer, or takes nothing; null: it does.")]
    operable: bool | None


class Health(msgspec.Struct):
    """Whether the endpoint is healthy."""

    healthy: bool
    problems: list[str]
    warnings: list[str]


class FailedSummary(msgspec.Struct):
    """A message of the error queue in a list."""

    message_id: str
    destination: str | None
    kind: str
    reason: str
    failed_at: datetime | None
    due_time: datetime | None
    failures: Count
    size: Count
    obstacle: str | None


class FailedMessage(FailedSummary):
    """A message of the error queue."""

    headers: dict[str, Any] | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET


class FailedPage(msgspec.Struct):
    """A page of the error queue; `next_skip`: where the next page begins."""

    messages: list[FailedMessage]
    depth: Count
    next_skip: Count | None


class ErrorGroup(msgspec.Struct):
    """Failed messages of one destination, kind and reason."""

    destination: str | None
    kind: str
    reason: str
    count: Count
    first: datetime | None
    last: datetime | None
    example: str
    message_id: str
    stuck: Count


class ErrorGroups(msgspec.Struct):
    """The error queue by groups; of its `depth` messages `examined` were read."""

    groups: list[ErrorGroup]
    depth: Count
    examined: Count


class ErrorFilter(msgspec.Struct, forbid_unknown_fields=True):
    """Failed messages that meet all that is given."""

    destination: Annotated[str, Meta(description="Where it was to go; empty: nothing says.")] | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    reason: Annotated[str, Meta(description="Of the same group: ids and numbers aside.")] | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    since: datetime | UnsetType = UNSET
    until: datetime | UnsetType = UNSET
    all: Everything | UnsetType = UNSET


class Job(msgspec.Struct):
    """A background job of the process that is asked."""

    job_id: str
    about: str
    by: str
    done: Count
    running: bool
    result: str | None
    problem: str | None
