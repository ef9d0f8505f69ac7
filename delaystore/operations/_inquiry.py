"""Finding out how an endpoint is doing, within a time."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

from delaystore.bridge import off_the_loop, on_a_loop
from delaystore.calls import Call, Question
from delaystore.dispatcher.status_check import MOST_COUNTED, depth_told
from delaystore.errors import (
    DelaystoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TransportUnavailableError,
)
from delaystore.operations._access import Access
from delaystore.operations.overview import Overview
from delaystore.stores.abc import Count, DelayedMessageStore, ManagedDelayedMessageStore
from delaystore.stores.operable import IngressRecord, OperableDelayedMessageStore, OperationState
from delaystore.transports.abc import Transport

_HOUR: Final = timedelta(hours=1)
_PURPOSE: Final = "asking for an overview"
_REMARKS: Final = "remarks"
"""The key of what is found under which stands what the store did not allow to be asked."""


class Inquiry:
    """Asks an endpoint's store and transport how they are; what they do not answer in time stays None.

    The store is asked one question after the other, the quick ones first, by one thread: a store that hangs keeps that
    one, and not one for each caller. On an event loop the loop itself asks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        self._question: Question[None] | None = None

    def overview(self, access: Access, timeout: float) -> Overview:
        """What is answered within about `timeout` seconds; raises nothing."""
        ends, queue, transport = monotonic() + timeout, access.settings.error_queue, access.transport
        depth = None if transport is None else _depth(transport, queue, timeout)
        found = self._asked(access, timeout)
        unknown, remarks = found.pop(_REMARKS, []), []
        if depth is not None:
            try:
                found["error_queue_depth"] = off_the_loop("delaystore-depth", depth.answer)
                found["error_queue_seen"] = found.get("now")
            except Exception as error:
                late = "the broker does not answer in time" if depth.too_late else str(error) or type(error).__name__
                remarks.append(f"It is unknown how many messages the error queue {queue!r} holds: {late}.")
        if found.get("error_queue_depth") is None:
            told = depth_told(found.get("dispatchers") or (), queue)
            found["error_queue_depth"], found["error_queue_seen"] = told
        if transport is not None and found.get("ingresses") and not remarks:
            found["ingresses"] = _looked_into(transport, found["ingresses"], found["now"], ends - monotonic())
        return Overview(endpoint=access.endpoint, error_queue=queue, remarks=[*unknown, *remarks], **found)

    def _asked(self, access: Access, timeout: float) -> dict[str, Any]:
        """What the store says, by the names of Overview's fields."""
        if on_a_loop():
            found: dict[str, Any] = {}
            try:
                with Call(_PURPOSE, timeout):
                    _ask(access, found)
            except Exception as error:
                found["problem"] = str(error) or type(error).__name__
            return found
        found, question = self._asking(access, timeout)
        try:
            question.answer()
        except Exception as error:
            return {**found, "problem": str(error) or type(error).__name__}
        return dict(found)

    def _asking(self, access: Access, timeout: float) -> tuple[dict[str, Any], Question[None]]:
        """The question that is asked at present, and what is found so far."""
        with self._lock:
            if self._question is None or not self._question.open:
                found: dict[str, Any] = {}
                self._found = found
                self._question = Question(_PURPOSE, lambda: _ask(access, found), timeout)
            return self._found, self._question


def _depth(transport: Transport, queue: str, timeout: float) -> Question[int | None]:
    return Question("asking for the error queue", lambda: transport.depth(queue), timeout)


def _looked_into(
    transport: Transport, ingresses: Sequence[IngressRecord], now: datetime, seconds: float
) -> Sequence[IngressRecord]:
    """The same, with what the broker says of their rejected queues where it does; else it stays what they told."""
    queues = {each.rejected_queue for each in ingresses}
    question = Question("asking for rejected queues", lambda: _depths(transport, queues), max(0.0, seconds))
    try:
        depths = off_the_loop("delaystore-depth", question.answer)
    except StoreUnavailableError:  # there was no answer in time
        return ingresses
    return [
        replace(each, rejected_depth=depths[each.rejected_queue], rejected_seen=now)
        if each.rejected_queue in depths
        else each
        for each in ingresses
    ]


def _depths(transport: Transport, queues: Iterable[str]) -> Mapping[str, int]:
    """How many messages are in those queues that there are."""
    found: dict[str, int] = {}
    for queue in queues:
        try:
            depth = transport.depth(queue)
        except TransportUnavailableError:
            break
        except DelaystoreError:  # no queue for this transport, which need not be the broker of the ingress
            continue
        if depth is not None:
            found[queue] = depth
    return found


def _ask(access: Access, found: dict[str, Any]) -> None:
    """Put what the store says into `found`, as it comes."""
    if not on_a_loop():  # there the caller does that, who waits without blocking the loop
        access.prepare()
    store = access.store
    status = store.status()
    found.update(now=status.now, first_due=status.first_due, read_only=status.read_only)
    found["overdue"] = status.overdue or timedelta(0)
    operable = store.is_operable if isinstance(store, OperableDelayedMessageStore) else None
    found["operable"] = operable
    found["hindrances"] = store.hindrances()
    for name, what, ask in _questions(store, status.now, operable=bool(operable)):
        try:
            found[name] = ask()
        except (StorePermissionError, StoreSetupError) as error:  # a role for monitoring, or a table that is missing
            if not found["hindrances"]:
                found.setdefault(_REMARKS, []).append(f"It is unknown {what}: {error}.")


def _questions(
    store: DelayedMessageStore, now: datetime, *, operable: bool
) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """The names of fields, what each says, and how to ask for it."""
    if isinstance(store, OperableDelayedMessageStore) and operable:
        yield "dispatchers", "which dispatchers run", store.dispatchers
        yield "ingresses", "which ingresses run", store.ingresses
        yield "destinations", "which destinations are paused or limited", store.destinations
        yield (
            "operations",
            "which operations run",
            lambda: [each for each in store.operations() if each.state is OperationState.RUNNING],
        )
        yield "activity", "what was dispatched in the last hour", lambda: store.activity(now - _HOUR)
    if isinstance(store, ManagedDelayedMessageStore):
        yield "waiting", "how many messages wait", store.estimate_count
    if isinstance(store, OperableDelayedMessageStore) and operable:
        yield "failing", "how many messages are failing", lambda: _up_to_most(store.count_failing)
        yield "parked", "how many messages are parked", lambda: _up_to_most(store.count_parked)


def _up_to_most(count: Callable[[int], int]) -> Count:
    return Count(number := count(MOST_COUNTED), exact=number < MOST_COUNTED)
