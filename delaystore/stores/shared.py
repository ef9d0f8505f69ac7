"""Rules that every store keeps the same way: limits, keys, checks of names, reports of ingresses."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from typing_extensions import override

from delaystore.errors import (
    ConfigurationError,
    DuplicateKeyError,
    DuplicateMessageError,
    InvalidMessageError,
    KeyInUseError,
    MessageBeingDispatchedError,
)
from delaystore.filters import Shift
from delaystore.message import (
    LATEST_DUE_TIME,
    MARKS,
    DelayedMessage,
    KeyRule,
    OnKey,
    check_key,
    check_message_id,
    marked,
    moved,
    time_left,
    unmarked,
    waiting_at_most,
)
from delaystore.processes import pause
from delaystore.stores.abc import DelayedMessageStore, KeyedDelayedMessageStore
from delaystore.stores.history import DeduplicatingStore
from delaystore.stores.records import (
    FURTHEST,
    GONE_FOR,
    Allowance,
    Change,
    Destination,
    IngressRecord,
    Operation,
    postponed_until,
)

SLOWEST: Final = 0.001
FASTEST: Final = 1_000_000.0
"""Bounds of a limit, in messages a second."""
_ROUNDING: Final = 1e-9
"""Of a message: what binary fractions lack."""
_UNEVEN: Final = timedelta(seconds=5)
"""How far two readings of a store's clock may be apart although it has not stepped."""


def check_max_rate(max_rate: float | None, name: str = "max_rate") -> float | None:
    """`max_rate` as a float. ConfigurationError, which calls it `name`: it is not a limit of messages a second."""
    if max_rate is None:
        return None
    if isinstance(max_rate, bool) or not isinstance(max_rate, int | float) or not SLOWEST <= max_rate <= FASTEST:
        raise ConfigurationError(
            f"{name} must be a number of messages a second from {SLOWEST} (3.6 an hour) to {FASTEST:.0f}, "
            f"not {max_rate!r}"
        )
    return float(max_rate)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket, as two times: it needs to be kept, and nothing else does."""

    full_at: datetime
    """When it is full again, if nothing goes until then."""
    promised: datetime
    """The last time that was given to a message that may not go now."""

    @classmethod
    def full(cls, now: datetime) -> Self:
        """One from which nothing was taken, as where a limit is new."""
        return cls(now, now)

    def forgiven(self, now: datetime) -> Self:
        """Without promises, as after a resume: who had them asks again at once."""
        return replace(self, promised=now)

    def has_promised(self, now: datetime) -> bool:
        """Whether a message may be postponed until after `now`."""
        return self.promised > now - FURTHEST

    def is_of_another_clock(self, now: datetime) -> bool:
        """Whether the clock has evidently stepped back since a time was promised."""
        return self.promised > now + FURTHEST + _UNEVEN


class DestinationState(NamedTuple):
    """A store's record of a destination that is paused, limited or resuming.

    Attributes:
        destination: As operators see it.
        bucket: The bucket of its limit; None: nothing was taken from it.
        reach: Up to when its messages may be postponed that are to be shown; None: there are none. While it is paused,
            the bucket keeps that.

    """

    destination: Destination
    bucket: Bucket | None = None
    reach: datetime | None = None

    def at(self, now: datetime) -> Self:
        """As it is at `now`: a pause whose time is over has ended, and so have promises of another clock."""
        until = self.destination.paused_until
        if until is not None and until <= now:
            return self.resumed(now)
        return self.forgiven(now) if self.bucket is not None and self.bucket.is_of_another_clock(now) else self

    def paused(self, until: datetime | None) -> Self:
        """Paused; the bucket keeps all that was promised, to be forgiven later."""
        bucket = self.bucket
        if bucket is not None and self.reach is not None:
            bucket = replace(bucket, promised=max(bucket.promised, self.reach))
        destination = replace(self.destination, paused=True, paused_until=until, resuming=False)
        return self._replace(destination=destination, bucket=bucket, reach=None)

    def resumed(self, now: datetime) -> Self:
        """Not paused any more; its messages are still to be shown."""
        destination = replace(self.destination, paused=False, paused_until=None, resuming=True)
        return self._replace(destination=destination).forgiven(now)

    def limited(self, max_rate: float | None, now: datetime) -> Self:
        """With another limit, or (None) without one."""
        state = self.forgiven(now)
        return state._replace(destination=replace(state.destination, max_rate=max_rate))

    def forgiven(self, now: datetime) -> Self:
        """Without promises: show postponed messages, unless their destination is paused."""
        bucket, reach = self.bucket, self.reach
        if self.destination.paused or bucket is None:
            return self
        if bucket.has_promised(now):
            reach = max(reach or now, bucket.promised, now + FURTHEST)
        destination = replace(self.destination, resuming=self.destination.resuming or reach is not None)
        return self._replace(destination=destination, bucket=bucket.forgiven(now), reach=reach)

    def shown(self) -> Self:
        """After its messages have been shown."""
        return self._replace(destination=replace(self.destination, resuming=False), reach=None)

    def promised(self, now: datetime) -> datetime | None:
        """The last time that was given under its limit; None: it has none."""
        if self.destination.max_rate is None:
            return None
        return now if self.bucket is None else self.bucket.promised


def shown_by(promised: datetime | None, ahead: timedelta, now: datetime) -> datetime:
    """The latest next attempt that a message postponed under the present limit has, if it is fetched `ahead` of it.

    `promised`: the last time that was given; None: the destination has no limit.
    """
    return now if promised is None else postponed_until(max(promised, now) + ahead)


def allowed(bucket: Bucket, max_rate: float, now: datetime, wanted: int) -> tuple[Allowance, Bucket]:
    """How many of `wanted` messages may go, when the others are to ask again, and the bucket after that."""
    most = max(1.0, max_rate)
    latest = now + FURTHEST
    full_at = min(max(bucket.full_at, now), now + _lasting(most / max_rate))  # the clock may have stepped back
    granted = max(0, min(wanted, math.floor(most - (full_at - now).total_seconds() * max_rate + _ROUNDING)))
    after = full_at + _lasting(granted / max_rate)
    first = after + _lasting((1 - most) / max_rate)
    if not _is_idle(bucket, now, most / max_rate):
        first = max(first, bucket.promised + _lasting(1 / max_rate))
    later = [min(first + _lasting(number / max_rate), latest) for number in range(wanted - granted)]
    return Allowance(granted=granted, later=later), Bucket(after, later[-1] if later else min(bucket.promised, latest))


def _is_idle(bucket: Bucket, now: datetime, seconds: float) -> bool:
    """Whether dispatchers that were promised times evidently do not come: they have gone, or ask elsewhere."""
    return (now - bucket.full_at).total_seconds() > 2 * seconds


def _lasting(seconds: float) -> timedelta:
    """Up to the next microsecond: no message goes too soon, and at a promised time there is a message's room."""
    return timedelta(microseconds=math.ceil(seconds * 1e6))


LONGEST: Final = timedelta(days=4_000_000)
"""Longer than all times there are."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


def seconds_of(bucket: timedelta) -> int:
    """The length of a bucket in seconds; raises ConfigurationError for one that is not whole, or too long."""
    if not timedelta(seconds=1) <= bucket <= LONGEST or bucket.microseconds:
        raise ConfigurationError(f"bucket must be a whole number of seconds, from 1 to {LONGEST}, not {bucket!r}")
    return int(bucket.total_seconds())


def number_of(instant: datetime, bucket: timedelta) -> int:
    """The number of the bucket that `instant` falls into."""
    return (instant - _EPOCH) // bucket


def start_of(number: int, bucket: timedelta) -> datetime:
    """When a bucket starts, or the first time there is."""
    try:
        return _EPOCH + number * bucket
    except OverflowError:
        return _FIRST


def check_number(number: int, name: str) -> None:
    """Raise ConfigurationError, which calls it `name`, unless `number` is a whole number from 1."""
    if type(number) is not int or number < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1, not {number!r}")


def check_new(operation: Operation) -> None:
    """Raise ConfigurationError unless `operation` is as before its first step."""
    if operation != new(operation):
        raise ConfigurationError(f"the operation {operation.operation_id!r} has begun already; begin a new one")


def taken(operation: Operation) -> ConfigurationError:
    """The error for an id that is there already."""
    return ConfigurationError(f"there is an operation {operation.operation_id!r} already; give each an id")


def new(operation: Operation) -> Operation:
    """`operation` as it is before its first step."""
    return Operation(
        operation_id=operation.operation_id,
        kind=operation.kind,
        wanted=operation.wanted,
        by=operation.by,
        began=operation.began,
        due_time=operation.due_time,
        shift=operation.shift,
    )


def ingresses_to_show(records: Iterable[IngressRecord], now: datetime) -> Sequence[IngressRecord]:
    """Live ingresses, and for each queue without one the ingress that died last; by queue and id."""
    living: list[IngressRecord] = []
    gone: dict[str, IngressRecord] = {}
    for each in sorted(records, key=lambda each: each.heartbeat):
        if not each.is_offline(now):
            living.append(each)
        elif now - each.heartbeat <= GONE_FOR:
            gone[each.queue] = each
    served = {each.queue for each in living}
    died = [each for each in gone.values() if each.queue not in served]
    return sorted(living + died, key=lambda each: (each.queue, each.ingress_id))


def shifted(message: Any, by: Shift) -> datetime:
    """The due time of `message`, or of a row, moved by a span; InvalidMessageError if that is out of range."""
    due_time = by.moved(unmarked(message))
    if due_time is None:
        raise InvalidMessageError(
            f"the new due time of message {message.message_id!r}, {by} from {unmarked(message).isoformat()}, is out of "
            "range; give a shorter time"
        )
    return due_time


LONGEST_PAUSE: Final = 0.1
"""Seconds between two looks at a message that another transaction has."""
_AnswerT = TypeVar("_AnswerT")


def key_of(message: DelayedMessage) -> str:
    """The key of a message that must have one."""
    if message.key is None:
        raise InvalidMessageError(
            f"the message {message.message_id!r} has no key; give it one, or leave on_key and max_wait out"
        )
    return message.key


def without_keys(messages: Iterable[DelayedMessage], keyed: list[DelayedMessage]) -> Iterator[DelayedMessage]:
    """Those of `messages` that have no key; the others are added to `keyed`."""
    for message in messages:
        if message.key is None:
            yield message
        else:
            keyed.append(message)


def in_order_of_keys(keyed: list[DelayedMessage]) -> list[DelayedMessage]:
    """Those of one key in their order; two batches with keys in common then never wait for one another."""
    return sorted(keyed, key=key_of)


def bounded(message: DelayedMessage, first_sent: datetime, rule: KeyRule) -> DelayedMessage:
    """`message`, due no later than the rule allows."""
    latest = latest_due_time(first_sent, rule)
    if latest is None or message.due_time <= latest:
        return message
    return replace(message, due_time=latest, next_attempt=latest, not_after=moved(message, latest))


def unlike(message: DelayedMessage, message_id: str, due_time: datetime) -> DelayedMessage:
    """`message`, to be put in the place of the one that has this id and due time.

    If it has this id, and the same due time without its marks, it gets those marks and one more: a dispatcher may
    remember the message as it was before any of them.
    """
    if message.message_id != message_id or not timedelta(0) <= message.due_time - due_time < MARKS:
        return message
    return replace(message, due_time=marked(due_time))


def latest_due_time(first_sent: datetime, rule: KeyRule) -> datetime | None:
    """None: the rule has no bound, or one that no due time reaches."""
    if rule.max_wait is None:
        return None
    try:
        latest = first_sent + rule.max_wait
    except OverflowError:
        return None
    return latest if latest <= LATEST_DUE_TIME else None


def refuse_duplicate(message: DelayedMessage, waiting: str, rule: KeyRule) -> None:
    """If the rule is to reject, raise the error that the message `waiting` has the key.

    A program that sends a message again to be sure of it learns that this very message waits.
    """
    if rule.on_key is OnKey.REJECT:
        if waiting == message.message_id:
            raise DuplicateMessageError([waiting])
        raise DuplicateKeyError(key_of(message), waiting)


def retried_while_claimed(attempt: Callable[[], _AnswerT], timeout: float) -> _AnswerT:
    """The result of `attempt`, made again for `timeout` seconds while a dispatcher has the message of its id or key.

    With 0 it is made once, and its statements wait for locks as long as they do by themselves.
    """
    wait = LONGEST_PAUSE / 16
    with waiting_at_most(timeout) if timeout else nullcontext():
        while True:
            try:
                return attempt()
            except (KeyInUseError, MessageBeingDispatchedError):
                if not timeout or time_left() < wait:
                    raise
            pause(wait)
            wait = min(2 * wait, LONGEST_PAUSE)


class ClaimsInBatches(DelayedMessageStore):
    """A store that claims and removes in batches: the calls about one message are batches of one."""

    @override
    def fetch_next_due_timeout(self, at: datetime) -> DelayedMessage | None:
        return next(iter(self.fetch_due(at, 1)), None)

    @override
    def fetch_due(self, at: datetime, limit: int) -> Sequence[DelayedMessage]:
        return self.fetch_batch(at, limit, sys.maxsize)

    @override
    def remove(self, message: DelayedMessage) -> bool:
        return self.remove_many([message]) == 1


def keyed(store: object) -> KeyedDelayedMessageStore:
    """`store`, which must know keys; raises ConfigurationError."""
    if not isinstance(store, KeyedDelayedMessageStore):
        raise ConfigurationError(
            f"{type(store).__name__} does not support keys; use a KeyedDelayedMessageStore, such as "
            "SqlDelayedMessageStore"
        )
    return store


def deduplicating(store: object) -> DeduplicatingStore:
    """`store`, which must be able to refuse delivered messages; raises ConfigurationError."""
    if not isinstance(store, DeduplicatingStore):
        raise ConfigurationError(
            f"{type(store).__name__} keeps no history, by which it could refuse delivered messages; use a "
            "DeduplicatingStore, such as SqlDelayedMessageStore"
        )
    return store


def check_one(message_id: str | None, key: str | None) -> None:
    """Raise InvalidMessageError unless exactly one is given, and could be one."""
    if message_id is not None and key is None:
        check_message_id(message_id)
    elif key is not None and message_id is None:
        check_key(key)
    else:
        raise InvalidMessageError("give exactly one of a message_id and key=")


def count_of_begun(operation: Operation, change: Change | None) -> int:
    """How many messages the entry has with which an operation began, after a step or the end noted as `change`.

    All that the operation has changed, until an entry of its end says so: then 0, so that nothing is counted twice.
    """
    return 0 if operation.ended is not None and change is not None else operation.changed


def answer_about(
    store: object,
    question: Callable[[str], _AnswerT],
    message_id: str | None,
    key: str | None,
    nothing: _AnswerT,
    *,
    changing: bool = False,
) -> _AnswerT:
    """The answer to `question` about the message of that id, or of that key; `nothing`: there is none.

    Where another message has taken the place of the one that was found, it is asked about that one. `changing`: also
    where the transaction does not see that.
    """
    check_one(message_id, key)
    if key is None:
        return question(str(message_id))
    before, is_first = None, True
    while True:
        newest = changing and not is_first
        found = keyed(store).newest_message_id_of(key) if newest else keyed(store).message_id_of(key)
        if found is not None and found != before:
            answer = question(found)
            if answer != nothing:
                return answer
        elif newest or not changing:
            return nothing
        before, is_first = found, False


Q = TypeVar("Q")
P = ParamSpec("P")
R = TypeVar("R")


def in_transaction(
    method: Callable[Concatenate[Any, P], R],
    *,
    of: Callable[[Any], object] | None = None,
    opened_by: str = "transaction",
) -> Callable[Concatenate[Any, P], R]:
    """`method` of a transaction's object, as a method of the store, with its signature and docstring.

    Args:
        method: The function of the transaction's class, or of `of`.
        of: Makes the object that has `method` of the transaction; None: the transaction has it.
        opened_by: The name of the store's method that opens the transaction of a call.

    """
    name = method.__name__

    @wraps(method)
    def call(self: Any, *arguments: P.args, **named: P.kwargs) -> R:
        with getattr(self, opened_by)() as transaction:
            target = transaction if of is None else of(transaction)
            result: R = getattr(target, name)(*arguments, **named)
        return result

    # a wrapper's `self` could be named in a call, which no caller does
    return cast(Callable[Concatenate[Any, P], R], call)
