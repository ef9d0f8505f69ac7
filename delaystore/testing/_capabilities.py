"""Capabilities of a store or transport beyond the minimum; they select the tests of the kit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeVar

Marked = TypeVar("Marked", bound=Callable[..., Any])

_NEEDED: Final = "delaystore_needs"


@dataclass(frozen=True, kw_only=True)
class StoreCapabilities:
    """Capabilities of a store. The defaults describe one that has the five methods and claims by a lease."""

    transactions: bool = False
    """Changes in a block of `transaction()` show at its end or are undone; its claims end with it."""
    batches: bool = False
    """`fetch_due` returns as many as it is asked for."""
    bounded_batches: bool = False
    """`fetch_batch` keeps to its number of bytes."""
    claims_outside_transactions: bool = True
    """A message fetched outside a block stays claimed until it is removed, its failure is counted, or a lease ends."""
    management: bool = False
    """It is a ManagedDelayedMessageStore."""
    keys: bool = False
    """It is a ManagedDelayedMessageStore and a KeyedDelayedMessageStore."""
    operations: bool = False
    """It is an OperableDelayedMessageStore, and its `transaction()` yields an OperableTransaction."""
    ingresses: bool = False
    """It keeps reports of ingresses; for stores with operations."""
    history: bool = False
    """It is a StoreWithHistory; for stores with operations."""
    schedules: bool = False
    """It is a StoreWithSchedules, and its transactions are SchedulingTransactions; for stores with operations."""
    latest_deliveries: bool = False
    """It keeps `not_after`: its `keeps_not_after` is True."""
    other_processes: bool = False
    """Another process can open the same storage: `open_elsewhere` is given."""
    lease: timedelta = timedelta(0)
    """How long the claims of a killed process last in the stores that the fixtures open; 0: they end at once."""
    ending_leases: bool = False
    """Claims made outside transactions can be made to end: `end_leases` is given."""
    hostile_sessions: bool = False
    """It can be opened with sessions in another time zone: `hostile_store_factory` is given."""
    unreadable_rows: bool = False
    """Its rows can be damaged: `corrupt` is given."""
    wake_ups: bool = False
    """`subscribe` returns a subscription."""


@dataclass(frozen=True, kw_only=True)
class TransportCapabilities:
    """Capabilities of a transport. The defaults describe one with queues that must be declared."""

    unroutable: bool = True
    """A message to a queue that does not exist comes back."""
    queue_addresses: bool = True
    """`/queues/NAME`, percent-encoded, means the queue NAME."""
    other_handles: bool = True
    """Two transports from `transport_factory` reach the same queues."""
    native_delays: bool = False
    """The transports of `transport_factory` have a native delay, of ten seconds or more."""
    outages: bool = False
    """Its server can be taken away: `outage` is given."""
    availability: bool = False
    """`unavailable()` tells of an outage; for transports with `outages`."""
    open_queues: bool = False
    """It has `open_queue`, `depth` and `reaches`."""
    decimal_scale: bool = True
    """A Decimal's trailing zeros arrive, too, and the sign of a zero."""


def needs(*flags: str) -> Callable[[Marked], Marked]:
    """Mark a test, or each test of a class, that exists only where all these capabilities are given."""

    def mark(marked: Marked) -> Marked:
        for test in _tests_of(marked) if isinstance(marked, type) else [marked]:
            setattr(test, _NEEDED, (*flags, *getattr(test, _NEEDED, ())))
        return marked

    return mark


def _tests_of(marked: type) -> Iterator[Callable[..., Any]]:
    """The tests that the class itself defines; others may be its bases', or None, for left out."""
    for name, test in vars(marked).items():
        if name.startswith("test_") and getattr(test, "__qualname__", "") == f"{marked.__qualname__}.{name}":
            yield test


class SelectedByCapabilities:
    """A test class without those inherited tests that need more than its `capabilities`."""

    capabilities: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherited = {name: test for base in reversed(cls.__mro__[1:]) for name, test in vars(base).items() if test}
        for name, test in inherited.items():
            flags = getattr(test, _NEEDED, None)
            if flags is not None and name not in vars(cls):
                present = all(getattr(cls.capabilities, flag) for flag in flags)
                setattr(cls, name, test if present else None)
