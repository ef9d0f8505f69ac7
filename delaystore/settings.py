"""Settings of an endpoint's delayed delivery: frozen, and checked at construction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import check_destination
from delaystore.text import duration_text, parse_address, parse_duration

MAXIMUM_SLEEP: Final = timedelta(seconds=60)
"""Stores wake dispatchers in other processes only for messages due within this time, so none may sleep longer."""

LONGEST_DISPATCH_TIMEOUT: Final = timedelta(minutes=2)
"""Rows stay claimed for as long. Databases end transactions that are idle for longer."""
MOST: Final[Mapping[str, timedelta | float]] = MappingProxyType(
    {
        "number_of_retries": 1_000_000,
        "time_to_trigger_store_circuit_breaker": timedelta(days=1),
        "time_to_trigger_fetch_circuit_breaker": timedelta(days=1),
        "time_to_trigger_dispatch_circuit_breaker": timedelta(days=1),
        "maximum_recovery_failures_per_second": 1_000_000,
        "retry_span": timedelta(days=365),
        "batch_size": 100_000,
        "batch_bytes": 2**40,
        "dispatch_timeout": LONGEST_DISPATCH_TIMEOUT,
        "maximum_sleep": MAXIMUM_SLEEP,
        "poll_interval": timedelta(hours=1),
        "handover_horizon": timedelta(days=3650),
        "store_timeout": timedelta(hours=1),
        "max_body_bytes": 2**30,
        "retention": timedelta(days=36_500),
        "history": timedelta(days=3650),
    }
)
"""The upper bound of each setting that has one."""
SHORTEST_STORE_TIMEOUT: Final = timedelta(seconds=1)
SHORTEST_RETENTION: Final = timedelta(days=1)
SHORTEST_HISTORY: Final = timedelta(minutes=1)

CriticalErrorAction = Callable[[str, Exception], None]
LONGEST_LEASE: Final = timedelta(days=1)


class TransactionMode(StrEnum):
    """The four modes of NServiceBus. Only TRANSACTION_SCOPE changes how delaystore delivers.

    TRANSACTION_SCOPE: The dispatcher fetches, forwards and deletes a message in one database transaction, so each
    message arrives exactly once. The transport must share the store's database. The other modes: at least once.
    """

    NONE = "none"
    RECEIVE_ONLY = "receive_only"
    SENDS_ATOMIC_WITH_RECEIVE = "sends_atomic_with_receive"
    TRANSACTION_SCOPE = "transaction_scope"


def transaction_mode(*, exactly_once: bool) -> TransactionMode:
    """The mode of an option that is on or off, as of `--exactly-once`; off: the default of the settings."""
    return TransactionMode.TRANSACTION_SCOPE if exactly_once else DelayedDeliverySettings.transaction_mode


class Audit(StrEnum):
    """Which changes of waiting messages are recorded in the store's audit trail."""

    OPERATORS = "operators"
    """Changes by operators: by the command line, the page, the API, the control queue, Django's admin, `operations`."""
    ALL = "all"
    """Also changes by programs: cancels, new due times, and messages that they replace by a key."""


class OnExpired(StrEnum):
    """How a dispatcher treats messages whose latest delivery has passed."""

    DROP = "drop"
    """Delete it, and record how many in the audit trail."""
    ERROR_QUEUE = "error-queue"
    """Move it to the error queue."""


class AddedHeader(StrEnum):
    """A header that a dispatcher adds to the messages that it forwards, where the message has none of that name."""

    DUE_TIME = "due-time"
    """When the message was due: ISO 8601 in UTC."""
    ATTEMPT = "attempt"
    """The number of this attempt to forward it, from 1; also attempts count that were deferred without being sent."""
    SENT_AT = "sent-at"
    """When the dispatcher published it, by the store's clock: ISO 8601 in UTC."""
    LOAD = "load"
    """The id of the load that stored it; messages of no load do not get the header."""

    @property
    def header(self) -> str:
        """The header's name in the message."""
        return f"delaystore.{self.value}"


_InputT = TypeVar("_InputT")
_StoredT = TypeVar("_StoredT")


class Converted(ABC, Generic[_InputT, _StoredT]):
    """A setting that is kept as one type, and may be given as others: type checkers know which.

    https://docs.python.org/3/library/dataclasses.html#descriptor-typed-fields
    """

    def __init__(self, default: _StoredT) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, settings: object | None, owner: type) -> _StoredT:
        """The setting; of the class: its default."""
        if settings is None:
            return self._default
        stored: _StoredT = vars(settings)[self._name]
        return stored

    def __set__(self, settings: object, value: _InputT) -> None:
        vars(settings)[self._name] = self._convert(value)

    @abstractmethod
    def _convert(self, value: _InputT) -> _StoredT:
        """Convert a value to the type that is kept; raises ConfigurationError."""


class Duration(Converted[timedelta | float, timedelta]):
    """A timedelta, which may be given in seconds; above 0, or from 0 where the default is 0."""

    @override
    def _convert(self, value: timedelta | float) -> timedelta:
        return _duration(self._name, value, zero=not self._default)


class TimeKept(Converted[timedelta | float | str | None, timedelta | None]):
    """A timedelta from 0, which may be given in seconds, or as in "30d"; or None."""

    @override
    def _convert(self, value: timedelta | float | str | None) -> timedelta | None:
        if isinstance(value, str):
            value = parse_duration(value, self._name)
        return None if value is None else _duration(self._name, value, zero=True)


_ChoiceT = TypeVar("_ChoiceT", bound=StrEnum)


class OneOf(Converted[_ChoiceT | str, _ChoiceT]):
    """A value of an enumeration, which may be given by its name."""

    @override
    def _convert(self, value: _ChoiceT | str) -> _ChoiceT:
        choices = type(self._default)
        try:
            return choices(value)
        except ValueError:
            raise ConfigurationError(f"{self._name} must be one of {', '.join(choices)}, not {value!r}") from None


class HeaderNames(Converted[Iterable[AddedHeader | str], tuple[AddedHeader, ...]]):
    """Values of AddedHeader, which may be given by name, or as one text with commas; `all`: each of them."""

    @override
    def _convert(self, value: Iterable[AddedHeader | str]) -> tuple[AddedHeader, ...]:
        try:
            names = {str(each).strip() for each in (value.split(",") if isinstance(value, str) else value)}
        except TypeError:
            raise ConfigurationError(f"{self._name} must be a list of names, not {value!r}") from None
        unknown = names - {*AddedHeader, "all", ""}
        if unknown:
            known = ", ".join(AddedHeader)
            raise ConfigurationError(f"{self._name} cannot be {min(unknown)[:80]!r}; choose from {known}, or all")
        return tuple(each for each in AddedHeader if each in names or "all" in names)


@dataclass(frozen=True, kw_only=True)
class DelayedDeliverySettings:
    """Settings of one endpoint's delayed delivery.

    The object is frozen. Give durations as timedeltas or in seconds. Names and defaults up to
    `maximum_recovery_failures_per_second` come from NServiceBus' MSMQ transport
    (https://github.com/Particular/NServiceBus.Transport.Msmq), except `number_of_retries`, whose default there is 0.

    Raises:
        ConfigurationError: A value is invalid; the text names the setting.

    """

    number_of_retries: int = 5
    """Maximum number of retries of a message, after its first failed attempt. Then it goes to the error queue.

    0: the first failure moves the message to the error queue."""
    time_to_trigger_store_circuit_breaker: Duration = Duration(timedelta(seconds=30))
    """How long storing messages must fail, without a success, before `on_critical_error` is called."""
    time_to_trigger_fetch_circuit_breaker: Duration = Duration(timedelta(seconds=30))
    """How long queries for due messages must fail, without a success, before `on_critical_error` is called."""
    time_to_trigger_dispatch_circuit_breaker: Duration = Duration(timedelta(seconds=30))
    """How long deliveries to the transport must fail, without a success, before `on_critical_error` is called."""
    maximum_recovery_failures_per_second: float = 1
    """Maximum rate of errors while the dispatcher records failures or moves messages to the error queue.

    Errors per second, as an average of 30 s. A higher rate calls `on_critical_error`."""
    transaction_mode: OneOf[TransactionMode] = OneOf(TransactionMode.RECEIVE_ONLY)
    """The delivery guarantee.

    `transaction_scope`: exactly once, with a SqlQueueTransport in the store's database. All other modes: at least
    once."""
    error_queue: str = "error"
    """The queue for messages that cannot be forwarded. The dispatcher declares it when it starts."""
    retry_span: Duration = Duration(timedelta(minutes=15))
    """Minimum time from the first failed attempt to the last retry. The gaps between retries grow exponentially."""
    batch_size: int = 1000
    """Maximum number of messages that a dispatcher claims and forwards in one batch."""
    batch_bytes: int = 32 * 1024 * 1024
    """Maximum size of all bodies in one batch, in bytes. A larger body is forwarded in its own batch."""
    dispatch_timeout: Duration = Duration(timedelta(seconds=5))
    """How long a batch waits for the broker's confirms. Its rows stay claimed meanwhile.

    On SQLite, choose a value well below the store's `lease`."""
    maximum_sleep: Duration = Duration(MAXIMUM_SLEEP)
    """Longest pause between two queries for due messages, if the store can wake the dispatcher from other processes
    (PostgreSQL)."""
    poll_interval: Duration = Duration(timedelta(seconds=0.5))
    """Longest pause between two queries for due messages, if the store cannot wake the dispatcher."""
    handover_horizon: Duration = Duration(timedelta(0))
    """How long before its due time a message is handed over to the transport's native delay. 0: when it is due.

    The next attempt of a failed message is stored later by this time. If you lower the setting, messages that have
    failed are delayed once, by the difference."""
    store_timeout: Duration = Duration(timedelta(seconds=30))
    """Maximum time of a store call for one message, or for one step of the dispatcher; at least 1 s.

    A call that takes longer raises StoreUnavailableError. `send_many`, `list`, the counts and the set-up have no
    limit."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Maximum size of a body, in bytes. `send` refuses larger bodies. The default is the default of RabbitMQ 4."""
    on_expired: OneOf[OnExpired] = OneOf(OnExpired.ERROR_QUEUE)
    """How the dispatcher treats messages whose latest delivery has passed.

    `error-queue`: move it to the error queue. `drop`: delete it, and record the number in the audit trail; a store
    without an audit trail has its messages moved to the error queue."""
    added_headers: HeaderNames = HeaderNames(())
    """Headers that the dispatcher adds to each message that it forwards: `due-time`, `attempt`, `sent-at`, `load`.

    A list of names, or one text with commas; `all`: each of them. The header's name begins with `delaystore.`. A header
    that the message has already stays as it is."""
    audit: OneOf[Audit] = OneOf(Audit.OPERATORS)
    """Which changes of waiting messages are recorded in the audit trail.

    `operators`: changes by people, through the command line, the web page, the API, the control queue, Django's admin
    or `operations`. `all`: also changes by programs and ingresses. Each entry is one more insert, in the transaction
    of the change."""
    retention: Duration = Duration(timedelta(days=90))
    """How long the store keeps entries of the audit trail, and operations that have ended; at least 1 day."""
    history: TimeKept = TimeKept(None)
    """How long the store keeps an entry of each message that has left it: delivered, cancelled, expired, and so on.

    From 1 minute, or as text such as `"30d"`. The dispatcher sets it for the endpoint when it starts. None: the store
    goes on as it does, at first without a history. 0: it makes no more entries."""
    automatic_setup: bool = True
    """Whether the first use creates or upgrades the store's tables. False: only `delaystore setup` does."""
    on_critical_error: CriticalErrorAction | None = None
    """Function that is called with a description and the last exception if errors persist. The dispatcher continues.

    None: the error is only logged."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "batch_bytes", "max_body_bytes"):
            _whole_number(name, getattr(self, name), at_least=1)
        if self.store_timeout < SHORTEST_STORE_TIMEOUT:
            raise ConfigurationError(
                f"store_timeout must be at least {SHORTEST_STORE_TIMEOUT}, not {self.store_timeout}"
            )
        if self.retention < SHORTEST_RETENTION:
            raise ConfigurationError(f"retention must be at least {SHORTEST_RETENTION}, not {self.retention}")
        _whole_number("number_of_retries", self.number_of_retries, at_least=0)
        rate = self.maximum_recovery_failures_per_second
        if not isinstance(rate, int | float) or not rate > 0:
            raise ConfigurationError(f"maximum_recovery_failures_per_second must be a number above 0, not {rate!r}")
        if self.history and self.history < SHORTEST_HISTORY:
            least, given = duration_text(SHORTEST_HISTORY), duration_text(self.history)
            raise ConfigurationError(f"history must be at least {least}, or 0, not {given}")
        for name, most in MOST.items():
            if getattr(self, name) is not None and getattr(self, name) > most:
                shown = most if isinstance(most, timedelta) else f"{most:,}"
                raise ConfigurationError(f"{name} must be at most {shown}, not {getattr(self, name)}")
        _check_error_queue(self.error_queue)
        if self.on_critical_error is not None and not callable(self.on_critical_error):
            raise ConfigurationError("on_critical_error must be a function of (description, exception)")


def _duration(name: str, value: object, *, zero: bool) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise ConfigurationError(f"{name} is out of range: {value!r}") from None
    if not isinstance(value, timedelta) or value < timedelta(0) or not (value or zero):
        shown = f"{value.total_seconds():g} s" if isinstance(value, timedelta) else repr(value)
        least = "from 0" if zero else "above 0"
        raise ConfigurationError(f"{name} must be a timedelta or seconds, {least}, not {shown}")
    return value


def check_lease(lease: object) -> timedelta:
    """`lease`, the length of a claim; raises ConfigurationError for one that cannot be."""
    if not isinstance(lease, timedelta) or lease <= timedelta(0):
        raise ConfigurationError(f"lease must be a timedelta above 0, not {lease!r}")
    if lease > LONGEST_LEASE:
        raise ConfigurationError(f"lease must be at most {LONGEST_LEASE}, not {lease}")
    return lease


def _check_error_queue(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"error_queue must be a queue name, not {name!r}")
    try:
        check_destination(name)
        parse_address(name)
    except InvalidMessageError as error:
        raise ConfigurationError(f"error_queue cannot be {name[:80]!r}: {error}") from None


def _whole_number(name: str, value: object, *, at_least: int) -> None:
    if type(value) is not int or value < at_least:
        raise ConfigurationError(f"{name} must be a whole number from {at_least}, not {value!r}")
