"""A user's `.option(...)` values, checked.

Errors name an option as it is written there: "the option loadId". The commands that load put --load-id in its place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeVar

from delaystore.bulk.windows import SendWindow
from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import MAX_LOAD_ID_BYTES, KeyRule, OnKey, check_destination, is_load_id, new_message_id
from delaystore.processes import actor_name, user_at_host
from delaystore.renames import LOAD_OPTIONS
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.records import Change, ChangeAction, Way
from delaystore.text import parse_duration, zone

REJECTED: Final = KeyRule()
"""The default rule for a key of a waiting message."""
_UNNAMED: Final = "unnamed-"
_OF_NOBODY: Final = re.compile(rf"{_UNNAMED}[0-9a-f]{{8}}-[0-9a-f]{{4}}-7[0-9a-f]{{3}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}")
_LARGEST_BODY: Final = 2**30
"""Arrow and PostgreSQL hold no larger value."""
_LONGEST_LEASE: Final = 30 * 86400
_MOST_PARTITIONS: Final = 10_000
"""No sample has more positions to make boundaries of."""
LONGEST_SPREAD: Final = timedelta(days=36_500)
"""Its microseconds are exact as a float."""
MOST_ROWS_PER_SECOND: Final = 10_000_000
_MOST_DIGITS: Final = 20
_SHOWN: Final = 40
"""Characters of a wrong value that an error shows."""

Choice = TypeVar("Choice", bound=StrEnum)


class OnDuplicate(StrEnum):
    """What to do with a message_id that waits in the store already, or that is twice in the load."""

    ERROR = "error"
    """Load nothing."""
    IGNORE = "ignore"
    """Keep the waiting message; of two in the load, keep one."""
    REPLACE = "replace"
    """Replace the waiting message as a whole, once no dispatcher has claimed it. Two in the load are an error.

    The waiting message's own key is no conflict; if another message has the row's key, the rule of keys decides.
    """


class DeliveredRows(StrEnum):
    """What to do with rows whose message_id was delivered before, as far as the history reaches back."""

    LOAD = "load"
    """Store them; the load does not read the history."""
    SKIP = "skip"
    """Leave them out; they count as skipped."""
    ERROR = "error"
    """Load nothing."""


class UnknownColumns(StrEnum):
    """The rule for columns that are not a message's."""

    ERROR = "error"
    HEADERS = "headers"
    BODY = "body"
    """The body is the JSON object of them; there is no body column then."""
    IGNORE = "ignore"
    """They are left out."""


class AmbiguousTime(StrEnum):
    """Which instant is meant by a local time that comes twice when the clocks change."""

    REJECT = "reject"
    EARLIEST = "earliest"
    LATEST = "latest"


class YesOrNo(StrEnum):
    """A switch, as Spark writes it."""

    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Which store. `store` is a URL, which may hold a password."""

    store: str
    endpoint: str
    schema: str | None = None
    table: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(endpoint={self.endpoint!r})"


@dataclass(frozen=True, kw_only=True, repr=False)
class WriteOptions(StoreOptions):
    """How to write.

    `load_id`: None: the load will not be recognised. `key_column`: the column of messages' keys, which go by
    `key_rule`; None: they have none. `id_columns`: the columns that a message_id is derived from where there is no
    such column. `destination`: for rows without one. `rejects`: a folder or URI for rows that cannot be messages;
    None: if there is one, nothing is loaded. `time_zone`: of timestamps without zone; None: they are refused.
    `zone_column`: the column of each row's time zone, which comes before `time_zone`; None: there is none. `spread`:
    the time over which due times are spread, at a rate that grows for the time `ramp`; `window`: where they must be
    then; `max_rows_per_second`: limit of the rate at which the load writes its rows; None each: as it comes.
    `max_body_bytes`: larger bodies are rejected. `transport`: the URL (it may hold a password) of the transport of
    the messages: rows that it cannot carry are rejected; None: no check. `lease_seconds`: how long a load without a
    sign of life keeps its staging.
    """

    load_id: str | None = None
    key_column: str | None = None
    key_rule: KeyRule = REJECTED
    id_columns: tuple[str, ...] = ()
    destination: str | None = None
    on_duplicate: OnDuplicate = OnDuplicate.ERROR
    if_delivered: DeliveredRows = DeliveredRows.LOAD
    rejects: str | None = None
    unknown_columns: UnknownColumns = UnknownColumns.ERROR
    time_zone: str | None = None
    zone_column: str | None = None
    ambiguous_time: AmbiguousTime = AmbiguousTime.REJECT
    spread: timedelta | None = None
    ramp: timedelta | None = None
    window: SendWindow | None = None
    max_rows_per_second: float | None = None
    max_body_bytes: int = DelayedDeliverySettings.max_body_bytes
    transport: str | None = None
    lease_seconds: int = 120
    again: bool = False
    """Load a cancelled load again."""
    noted_as: Change = field(default_factory=lambda: replacing(Way.LOAD))
    """Who replaces messages, and how, as the load's entry in the audit trail names them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ReadOptions(StoreOptions):
    """How to read.

    `partitions`: how many tasks; None: the source chooses. `push_filters`: the database applies the query's filters,
    which is right for one query of each `load()` only: Spark 4.3 plans further ones with the filters of the last.
    """

    partitions: int | None = None
    push_filters: bool = False


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of `df.write`; names in any case. ConfigurationError names unknown and wrong options."""
    given = _OptionReader(options)
    key_column = given.text("keyColumn")
    read = WriteOptions(
        store=given.required("store"),
        endpoint=given.required("endpoint"),
        schema=given.text("schema"),
        table=given.text("table"),
        load_id=given.text("loadId"),
        key_column=key_column,
        key_rule=_key_rule(key_column, given.choice("onKey", OnKey.REJECT), given.text("maxWait")),
        id_columns=tuple(name.strip() for name in (given.text("idColumns") or "").split(",") if name.strip()),
        destination=given.text("destination"),
        on_duplicate=given.choice("onDuplicate", WriteOptions.on_duplicate),
        if_delivered=given.choice("ifDelivered", WriteOptions.if_delivered),
        rejects=given.text("rejects"),
        unknown_columns=given.choice("unknownColumns", WriteOptions.unknown_columns),
        time_zone=given.text("timeZone"),
        zone_column=given.text("zoneColumn"),
        ambiguous_time=given.choice("ambiguousTime", WriteOptions.ambiguous_time),
        spread=given.duration("spread"),
        ramp=given.duration("ramp"),
        window=None if (window := given.text("window")) is None else SendWindow.parse(window, "the option window"),
        max_rows_per_second=given.number("maxRowsPerSecond", 0, at_most=MOST_ROWS_PER_SECOND) or None,
        max_body_bytes=given.number("maxBodyBytes", WriteOptions.max_body_bytes, at_most=_LARGEST_BODY),
        transport=given.text("transport"),
        lease_seconds=given.number("leaseSeconds", WriteOptions.lease_seconds, at_most=_LONGEST_LEASE),
        again=given.choice("again", YesOrNo.FALSE) is YesOrNo.TRUE,
    )
    given.nothing_left()
    _check_load_id(read.load_id)
    if read.again and read.load_id is None:
        raise ConfigurationError("the option again needs the option loadId; name the load that is loaded once more")
    if read.destination is not None:
        check_destination(read.destination)
    if read.time_zone is not None:
        zone(read.time_zone)
    _check_timing(read)
    return read


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read`; as `write_options`."""
    given = _OptionReader(options)
    read = ReadOptions(
        store=given.required("store"),
        endpoint=given.required("endpoint"),
        schema=given.text("schema"),
        table=given.text("table"),
        partitions=given.number("partitions", 0, at_most=_MOST_PARTITIONS) or None,
        push_filters=given.choice("pushFilters", YesOrNo.FALSE) is YesOrNo.TRUE,
    )
    given.nothing_left()
    return read


def replacing(way: Way, by: str | None = None) -> Change:
    """The audit entry of messages that a load replaces in the name of `by`; None: of this user."""
    return Change(by=actor_name(by) or user_at_host(), way=way, action=ChangeAction.REPLACE)


def new_load_id() -> str:
    """Return an id for a load that has no name."""
    return _UNNAMED + new_message_id()


def is_unnamed(load_id: str) -> bool:
    """Whether `new_load_id` made it; False for a user's own id, even if it begins like that."""
    return _OF_NOBODY.fullmatch(load_id) is not None


def _key_rule(column: str | None, on_key: OnKey, max_wait: str | None) -> KeyRule:
    if column is None and (on_key is not OnKey.REJECT or max_wait is not None):
        raise ConfigurationError("the options onKey and maxWait need the option keyColumn; name the column of keys")
    if max_wait is None:
        return KeyRule(on_key)
    if on_key is not OnKey.DEBOUNCE:
        raise ConfigurationError("the option maxWait needs the option onKey debounce; leave it out")
    try:
        return KeyRule.of(on_key, float(max_wait))
    except (InvalidMessageError, ValueError):
        raise ConfigurationError(
            f"the option maxWait must be a number of seconds above 0, not {max_wait[:_SHOWN]!r}"
        ) from None


def _check_timing(given: WriteOptions) -> None:
    if given.ramp is not None and (given.spread is None or given.ramp > given.spread):
        raise ConfigurationError(
            "the option ramp is a part of the option spread; set the option spread to the same time or a longer one"
        )
    if given.window is not None and given.time_zone is None and given.zone_column is None:
        raise ConfigurationError("the option window needs zones; set the option timeZone or the option zoneColumn")


def _check_load_id(load_id: str | None) -> None:
    if load_id is None:
        return
    if not is_load_id(load_id):
        raise ConfigurationError(
            f"the load id {load_id[:_SHOWN]!r} cannot be used; "
            f"take up to {MAX_LOAD_ID_BYTES} printable ASCII characters"
        )


class _OptionReader:
    """Options by their names in lower case, taken one by one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): (name, value) for name, value in options.items()}
        self._asked: list[str] = []

    def text(self, name: str) -> str | None:
        """The option's value; None: not given, or empty."""
        self._asked.append(name)
        _, value = self._left.pop(name.lower(), (name, ""))
        return value or None

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise ConfigurationError(f'the option {name} is missing; add .option("{name}", ...)')
        return value

    def choice(self, name: str, default: Choice) -> Choice:
        value, choices = self.text(name), type(default)
        try:
            return default if value is None else choices(value.lower())
        except ValueError:
            raise ConfigurationError(f"the option {name} must be one of {', '.join(choices)}, not {value!r}") from None

    def number(self, name: str, default: int, *, at_most: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        is_number = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        if not is_number or not 1 <= int(value) <= at_most:
            raise ConfigurationError(
                f"the option {name} must be a whole number from 1 to {at_most}, not {value[:_SHOWN]!r}"
            )
        return int(value)

    def duration(self, name: str) -> timedelta | None:
        value = self.text(name)
        found = None if value is None else parse_duration(value, f"the option {name}")
        if found is not None and not timedelta(0) < found <= LONGEST_SPREAD:
            raise ConfigurationError(f"the option {name} must be above 0, and at most {LONGEST_SPREAD.days}d")
        return found

    def nothing_left(self) -> None:
        for name, _ in self._left.values():
            if (renamed := LOAD_OPTIONS.get(name.lower())) is not None:
                raise ConfigurationError(f"the option {name} is now {renamed}")
            raise ConfigurationError(f"the option {name} is unknown here; there are {', '.join(self._asked)}")
