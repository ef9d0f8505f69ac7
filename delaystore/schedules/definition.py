"""A schedule: its rule, the message that it makes, and how both are applied."""

import json as js
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, Required, Self, TypedDict
from zoneinfo import ZoneInfo

from delaystore.errors import ConfigurationError, DelaystoreError, InvalidMessageError, InvalidScheduleError
from delaystore.message import NO_BODY, NOTHING, DelayedMessage, json_content, utc
from delaystore.schedules.rules import DaysRule, IntervalRule, Rule, duration_of, rule_of
from delaystore.stores.documents import body_in, content, instant
from delaystore.stores.schedules import StoredSchedule, occurrence_id
from delaystore.text import parse_instant

MAX_NAME_BYTES: Final = 200
"""Bytes of a schedule's name in UTF-8: the ids of its occurrences are longer."""
SCHEDULE: Final = "delaystore.schedule"
"""The header of an occurrence with the name of its schedule."""
NOMINAL_TIME: Final = "delaystore.nominal-time"
"""The header with the time for which the rule made the occurrence, ISO 8601 in UTC."""
NEXT_TIME: Final = "delaystore.next-time"
"""The header with the nominal time of the next occurrence; absent if there is none."""
BACKFILLED: Final = "delaystore.backfilled"
"""The header of occurrences that `backfill` made."""
OWN_ID: Final = "{message_id}"
"""The value of a header or property that stands for the message_id of the occurrence."""
MOST_LATE: Final = timedelta(minutes=1)
"""How late a missed occurrence may be with `catch_up="none"`, unless `max_late` says otherwise."""
_SECOND: Final = timedelta(seconds=1)


class Definition(TypedDict, total=False):
    """The arguments of `Schedule.of` and `Schedules.put` besides the name."""

    destination: Required[str]
    body: bytes | None
    json: Any
    cron: str | None
    every: timedelta | float | str | None
    at: str | time | None
    zone: str | ZoneInfo | None
    both_days: bool
    headers: Mapping[str, Any] | None
    properties: Mapping[str, Any] | None
    starts: datetime | None
    ends: datetime | None
    max_runs: int | None
    catch_up: "CatchUp | str"
    max_late: timedelta | float | str | None
    jitter: timedelta | float | str | None
    if_waiting: "IfWaiting | str"


class CatchUp(StrEnum):
    """Which occurrences are made that were missed, because no dispatcher ran at their time."""

    LAST = "last"
    """The last one of them."""
    NONE = "none"
    """The ones that are not later than `max_late`, a minute by default."""
    ALL = "all"
    """All of them, the last 1,000 at most."""


class IfWaiting(StrEnum):
    """Whether an occurrence is made if an earlier one of its schedule still waits in the store at its time."""

    ALLOW = "allow"
    """It is made as well."""
    SKIP = "skip"
    """It is left out, and counted as overlapped."""


def check_name(name: str) -> str:
    """`name`, if a schedule may have it; raises InvalidScheduleError."""
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise InvalidScheduleError(f"a schedule's name must be a text without blanks at its ends, not {name!r:.80}")
    if not name.isprintable():
        raise InvalidScheduleError(f"the schedule's name {name!r:.80} contains a line break or a control character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidScheduleError(f"the schedule's name {name!r:.80} cannot be written as UTF-8") from None
    if size > MAX_NAME_BYTES:
        raise InvalidScheduleError(
            f"the schedule's name {name!r:.80} has {size} bytes; {MAX_NAME_BYTES} are allowed, use a shorter name"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring schedule; `Schedule.of` makes one.

    Attributes:
        name: Its name, unique in its endpoint. A prefix such as `invoices/` groups schedules.
        rule: When its occurrences are due.
        destination: Where they go.
        body: Their body.
        headers: Their headers; delaystore adds more.
        properties: Their properties.
        starts: No occurrence is due before; None: no bound. An interval counts from it.
        ends: No occurrence is due after it; None: no bound.
        max_runs: How many occurrences are made in all; None: no limit.
        catch_up: Which missed occurrences are made later.
        max_late: An occurrence that is later than this is not made, or not delivered; None: no bound.
        jitter: Each occurrence is due up to this long after its nominal time, always as long for the same occurrence.
        if_waiting: Whether an occurrence is made if an earlier one still waits at its time.

    """

    name: str
    rule: Rule
    destination: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    properties: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    starts: datetime | None = None
    ends: datetime | None = None
    max_runs: int | None = None
    catch_up: CatchUp = CatchUp.LAST
    max_late: timedelta | None = None
    jitter: timedelta = timedelta(0)
    if_waiting: IfWaiting = IfWaiting.ALLOW

    @classmethod
    def of(
        cls,
        name: str,
        *,
        destination: str,
        body: bytes | None = None,
        json: Any = None,
        cron: str | None = None,
        every: timedelta | float | str | None = None,
        at: str | time | None = None,
        zone: str | ZoneInfo | None = None,
        both_days: bool = False,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        starts: datetime | None = None,
        ends: datetime | None = None,
        max_runs: int | None = None,
        catch_up: CatchUp | str = CatchUp.LAST,
        max_late: timedelta | float | str | None = None,
        jitter: timedelta | float | str | None = None,
        if_waiting: IfWaiting | str = IfWaiting.ALLOW,
    ) -> Self:
        """Make a schedule, and check it.

        Args:
            name: Its name: up to 200 bytes without line breaks.
            destination: Where occurrences go: a queue, or an address of the transport.
            body: Their content; or else give `json`.
            json: A value whose JSON, in UTF-8, is the body; not None.
            cron: A cron expression of five fields, or of six with seconds first; or else give `every`.
            every: An interval of whole seconds: a timedelta, seconds, or a text such as `5m` or `2d`. It counts from
                `starts`.
            at: With an interval of whole days: the local time of each occurrence, such as `09:00`.
            zone: The time zone of `cron` and `at`, a ZoneInfo or a name such as `Europe/Berlin`; None: UTC.
            both_days: A day must match both the day of the month and the day of the week of `cron`, if both are
                restricted. By default one of them is enough, as in cron.
            headers: Headers of each occurrence. The text `{message_id}` stands for its id, also in properties.
            properties: Properties of the transport, such as AMQP's `content_type`.
            starts: No occurrence is due before this aware datetime. None: no bound; an interval counts from now.
            ends: No occurrence is due after this aware datetime.
            max_runs: How many occurrences are made in all.
            catch_up: Which occurrences are made that were missed while no dispatcher ran: the `last` one, `none` that
                is later than `max_late`, or `all` of them, 1,000 at most.
            max_late: An occurrence that is later than this is not made, or not delivered: a timedelta, seconds or a
                text.
            jitter: Occurrences are due up to this long after their nominal time: a timedelta, seconds or a text.
            if_waiting: Whether an occurrence is left out (`skip`) if an earlier one still waits in the store at its
                time, or made as well (`allow`).

        Returns:
            The schedule.

        Raises:
            InvalidScheduleError: The schedule cannot be: the message says why, and what to do.

        Example:
            ```python
            Schedule.of("reports/weekly", cron="0 9 * * 1", zone="Europe/Berlin", destination="reports", body=b"")
            ```

        """
        check_name(name)
        with named_in_errors(name):
            if json is not None:
                body, properties = json_content(body, json, properties)
            elif body is None:
                raise InvalidMessageError(NO_BODY)
            for called, given in (("headers", headers), ("properties", properties)):
                if not isinstance(given, Mapping | None):
                    raise InvalidScheduleError(f"{called} must be a mapping of names to values, not {given!r:.80}")
            options = {
                "cron": cron,
                "every": every,
                "at": at,
                "zone": zone,
                "both_days": both_days,
                "starts": starts,
                "ends": ends,
                "max_runs": max_runs,
                "catch_up": catch_up,
                "max_late": max_late,
                "jitter": jitter,
                "if_waiting": if_waiting,
            }
            made = cls(
                name=name,
                destination=destination,
                body=body,
                headers=NOTHING if headers is None else headers,
                properties=NOTHING if properties is None else properties,
                **_checked(options),
            )
            made.sample()
        return made

    def anchored(self, starts: datetime) -> Self:
        """The same, whose interval counts from `starts` if it names no other beginning."""
        if self.starts is not None or not isinstance(self.rule, IntervalRule | DaysRule):
            return self
        starts = starts.replace(microsecond=0)
        return replace(self, starts=starts, rule=replace(self.rule, starts=starts))

    def after(self, time: datetime) -> datetime | None:
        """The first nominal time after `time`; None: there is none any more."""
        found = self.rule.next_after(self._not_before(time))
        return None if found is None or (self.ends is not None and found > self.ends) else found

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The nominal times after `after`, up to `until`."""
        return self.rule.between(self._not_before(after), self._not_after(until))

    def count_between(self, after: datetime, until: datetime, at_most: int) -> int:
        """How many `between` has, up to `at_most`."""
        return self.rule.count_between(self._not_before(after), self._not_after(until), at_most)

    def due_time(self, nominal: datetime) -> datetime:
        """When the occurrence is due: at its nominal time, or a jitter later that is always the same."""
        if not self.jitter:
            return nominal
        digest = sha256(occurrence_id(self.name, nominal).encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        return nominal + timedelta(milliseconds=int(share * self.jitter / timedelta(milliseconds=1)))

    def message(
        self,
        nominal: datetime,
        following: datetime | None,
        *,
        due_time: datetime | None = None,
        message_id: str | None = None,
        backfilled: bool = False,
    ) -> DelayedMessage:
        """The occurrence of a nominal time.

        Args:
            nominal: The nominal time.
            following: The nominal time of the next occurrence; None: there is none.
            due_time: When it is due; None: at its nominal time, with the jitter.
            message_id: Its id; None: the one of its nominal time.
            backfilled: Whether `backfill` makes it.

        """
        message_id = message_id or occurrence_id(self.name, nominal)
        due_time = due_time or self.due_time(nominal)
        added = {SCHEDULE: self.name, NOMINAL_TIME: instant(nominal)}
        if following is not None:
            added[NEXT_TIME] = instant(following)
        marks = {BACKFILLED: True} if backfilled else {}
        return DelayedMessage(
            message_id=message_id,
            destination=self.destination,
            due_time=due_time,
            body=self.body,
            headers={**_with_own_id(self.headers, message_id), **added, **marks},
            properties=_with_own_id(self.properties, message_id),
            not_after=None if self.max_late is None else due_time + self.max_late,
        )

    def sample(self) -> DelayedMessage:
        """Any of its occurrences, to check whether a store and a transport can carry them."""
        return self.message(_PLACEHOLDER, None)

    def definition(self) -> Mapping[str, Any]:
        """The definition without destination and content, as a row keeps it in JSON; defaults are left out."""
        known: dict[str, Any] = {
            **self.rule.as_dict(),
            "starts": instant(self.starts),
            "ends": instant(self.ends),
            "max_runs": self.max_runs,
            "catch_up": None if self.catch_up is CatchUp.LAST else self.catch_up.value,
            "max_late": _seconds(self.max_late),
            "jitter": _seconds(self.jitter or None),
            "if_waiting": None if self.if_waiting is IfWaiting.ALLOW else self.if_waiting.value,
        }
        return {name: value for name, value in known.items() if value is not None}

    @classmethod
    def of_row(cls, row: StoredSchedule) -> Self:
        """The schedule of a row. Raises InvalidScheduleError where this release or machine cannot read it."""
        try:
            options = _stored(js.dumps(row.definition))
        except (DelaystoreError, TypeError, ValueError) as error:
            raise InvalidScheduleError(f"the schedule {row.name!r} cannot be read: {error}") from None
        return cls(
            name=row.name,
            destination=row.destination,
            body=row.body,
            headers=row.headers,
            properties=row.properties,
            **options,
        )

    def as_document(self) -> dict[str, Any]:
        """The schedule as JSON; `of_document` makes it again, unless headers or properties are bytes or times."""
        found = {name: value for name, value in content(self).items() if value or name == "body"}
        return {"name": self.name, "destination": self.destination, **self.definition(), **found}

    @classmethod
    def of_document(cls, document: Mapping[str, Any], name: str | None = None) -> Self:
        """Make a schedule of JSON or TOML: the arguments of `of`.

        `body` is text here, and `body_base64` may take its place. Times are ISO 8601 with an offset.

        Args:
            document: The arguments by name.
            name: Its name, if the document has none.

        Raises:
            InvalidScheduleError: A member is unknown, missing, or of the wrong type, or the schedule cannot be.

        """
        members = {"name": name, **document}
        called = members["name"]
        with named_in_errors(called):
            unknown = sorted(members.keys() - _MEMBERS)
            if unknown:
                raise InvalidScheduleError(f"{unknown[0]!r:.80} is not one of {', '.join(sorted(_MEMBERS))}")
            if not isinstance(members.get("destination"), str):
                raise InvalidScheduleError("it needs a destination, which is a text")
            for text in ("cron", "zone", "body", "body_base64", "catch_up", "if_waiting"):
                if not isinstance(members.get(text), str | None):
                    raise InvalidScheduleError(f"{text} must be a text")
            if not isinstance(members.get("both_days"), bool | None):
                raise InvalidScheduleError("both_days must be true or false")
            body = body_in(members.pop("body", None), members.pop("body_base64", None))
            if (body is None) == (members.get("json") is None):
                raise InvalidScheduleError("give one of body, body_base64 and json")
            for bound in _BOUNDS:
                members[bound] = _time_in(members.get(bound), bound)
        given = {key: value for key, value in members.items() if value is not None and key != "name"}
        return cls.of(called, body=body, **given)

    def _not_before(self, time: datetime) -> datetime:
        return time if self.starts is None or self.starts <= time else self.starts - _SECOND

    def _not_after(self, time: datetime) -> datetime:
        return time if self.ends is None else min(time, self.ends)


_PLACEHOLDER: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""The beginning of an interval until the store's clock gives it one."""
_MEMBERS: Final = {"name", "body_base64", *Definition.__annotations__}


@contextmanager
def named_in_errors(name: object) -> Iterator[None]:
    """Have errors about the definition of a schedule say its name. Raises InvalidScheduleError for all of them."""
    try:
        yield
    except (InvalidScheduleError, InvalidMessageError, ConfigurationError) as error:
        raise InvalidScheduleError(f"the schedule {name!r} is invalid: {error}") from None


@lru_cache(maxsize=10_000)
def _stored(definition: str) -> Mapping[str, Any]:
    """The arguments of a Schedule that a row keeps as JSON; members of later releases are left out."""
    known = js.loads(definition)
    return _checked(known | {name: datetime.fromisoformat(known[name]) for name in _BOUNDS if name in known})


def _checked(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a Schedule besides its name and its message, of those of `Schedule.of` that are given."""
    starts, ends = (_whole(given.get(name), name) for name in _BOUNDS)
    if starts is not None and ends is not None and ends < starts:
        raise InvalidScheduleError("ends must not be before starts")
    rule = {name: given[name] for name in ("cron", "every", "at", "zone", "both_days") if name in given}
    return {
        "rule": rule_of(**rule, starts=starts or _PLACEHOLDER),
        "starts": starts,
        "ends": ends,
        "max_runs": _count(given.get("max_runs")),
        "catch_up": _choice(CatchUp, given.get("catch_up", CatchUp.LAST), "catch_up"),
        "max_late": _duration(given.get("max_late"), "max_late", positive=True),
        "jitter": _duration(given.get("jitter"), "jitter") or timedelta(0),
        "if_waiting": _choice(IfWaiting, given.get("if_waiting", IfWaiting.ALLOW), "if_waiting"),
    }


_BOUNDS: Final = ("starts", "ends")
_LONGEST: Final = timedelta(days=3650)


def _with_own_id(values: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
    """`values`, whose placeholders are the id of the occurrence."""
    return {name: message_id if value == OWN_ID else value for name, value in values.items()}


def _whole(given: datetime | None, name: str) -> datetime | None:
    return None if given is None else utc(given, name).replace(microsecond=0)


def _time_in(given: Any, name: str) -> datetime | None:
    """A time of a document: TOML has datetimes, JSON has texts."""
    if given is None:
        return None
    return parse_instant(given.isoformat() if isinstance(given, date) else str(given), name)


def _count(given: int | None) -> int | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 10**9):
        raise InvalidScheduleError(f"max_runs must be a whole number from 1 to 1,000,000,000, not {given!r:.80}")
    return given


def _duration(given: timedelta | float | str | None, name: str, *, positive: bool = False) -> timedelta | None:
    if given is None:
        return None
    found = duration_of(given, name)
    if not timedelta(0) <= found <= _LONGEST or (positive and not found):
        least = "more than 0" if positive else "0"
        raise InvalidScheduleError(f"{name} must be a duration from {least} to ten years, not {given!s:.80}")
    return found


def _choice(kind: Any, given: str, name: str) -> Any:
    try:
        return kind(given)
    except ValueError:
        raise InvalidScheduleError(f"{name} must be one of {', '.join(kind)}, not {given!r:.80}") from None


def _seconds(of: timedelta | None) -> float | None:
    return None if of is None else of.total_seconds()
