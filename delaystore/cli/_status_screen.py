"""What `delaystore status` says of an endpoint, as lines for people."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from delaystore.amounts import limit_text, named, rate_text, up_to
from delaystore.cli._output import about, printable, table_lines
from delaystore.cli._recent import COLUMNS, WINDOWS, recent_row
from delaystore.cli._store_report import StoreReport
from delaystore.operations.demands import Demands
from delaystore.operations.recent import Recent
from delaystore.times import duration_text, time_text

if TYPE_CHECKING:
    from delaystore.operations.overview import Overview
    from delaystore.sql.sizes import TableSize
    from delaystore.stores.operable import Destination, DispatcherRecord, IngressRecord

_PLACE = ("process", "version", "since", "beat")
_NUMBERS = ("since", "beat", "rate", "stored", "rejected")
_JUST_NOW = timedelta(seconds=1)
_SIZES = ("rows", "dead rows", "data", "indexes")


def status_lines(report: StoreReport, demands: Demands, sizes: "Sequence[TableSize] | None") -> list[str]:
    """All of it; `sizes` None: they were not told in time. Raises OutputError."""
    seen = report.overview
    lines = [f"{name:<13}{printable(text)}" for name, text in _facts(report, demands)]
    if seen.dispatchers:
        rows = [_dispatcher(each, seen.now) for each in seen.dispatchers]
        lines += ["", *table_lines(("dispatcher", *_PLACE, "rate", "state"), rows, right=_NUMBERS)]
    if seen.ingresses:
        rows = [_ingress(each, seen.now) for each in seen.ingresses]
        lines += ["", *table_lines(("ingress", *_PLACE, "stored", "rejected", "state"), rows, right=_NUMBERS)]
    if seen.activity is not None and seen.now is not None:
        recent = [recent_row(Recent.of(seen.activity, seen.now, minutes)) for minutes in WINDOWS]
        lines += ["", *table_lines(COLUMNS, recent, right=COLUMNS)]
    if sizes:
        lines += ["", *table_lines(("table", *_SIZES), [_size(size) for size in sizes], right=_SIZES)]
    return lines


def _facts(report: StoreReport, demands: Demands) -> Iterator[tuple[str, str]]:
    seen, faults = report.overview, report.faults(demands)
    yield "endpoint", seen.endpoint
    yield "health", "unhealthy: " + "; ".join(faults) if faults else "healthy"
    if seen.waiting is not None:
        yield "waiting", about(seen.waiting, "delaystore count --exact counts")
    if report.problem is None:
        yield from _times(seen)
    for name, count in (("failing", seen.failing), ("parked", seen.parked)):
        if count is not None:
            hint = "; delaystore list --failing shows them" if name == "failing" and count.messages else ""
            yield name, up_to(count.messages, exact=count.exact) + hint
    for name, some, shown in (("paused", seen.paused, _paused), ("limited", seen.limited, _limited)):
        if some:
            yield name, named([shown(each) for each in some])
    if report.problem is None or seen.error_queue_depth is not None:
        yield "error queue", _error_queue(seen)
    yield from _rejected(seen)
    for running in seen.operations or ():
        changed = f"{running.changed:,} changed so far, by {running.by}"
        yield "operation", f"{running.operation_id}: {running.kind} ({running.wanted}): {changed}"
    yield from _problems(report)


def _times(seen: "Overview") -> Iterator[tuple[str, str]]:
    if seen.first_due is not None and seen.now is not None:
        ahead = seen.first_due - seen.now
        when = f"in {duration_text(ahead)}" if ahead > timedelta(0) else f"{duration_text(-ahead)} ago"
        yield "first due", f"{time_text(seen.first_due)}, {when}"
    if seen.overdue is not None:
        yield "overdue", f"the oldest for {duration_text(seen.overdue)}" if seen.overdue else "nothing"


def _problems(report: StoreReport) -> Iterator[tuple[str, str]]:
    """What is not as it should be, without what is told above."""
    seen = report.overview
    if report.no_dispatcher:
        yield "dispatchers", "none is running, and messages are overdue"
    elif seen.dispatchers is not None and not seen.dispatchers:
        yield "dispatchers", "none is running"
    if seen.operable is False:
        yield "tables", "of an earlier release; `delaystore setup` upgrades them, and then more is told here"
    if seen.problem is not None and report.problem is None:
        yield "not told", seen.problem
    for remark in seen.remarks:
        yield "not told", remark


def _error_queue(seen: "Overview") -> str:
    if seen.error_queue_depth is not None:
        return f"{seen.error_queue}: {seen.error_queue_depth:,}{_ago(seen.error_queue_seen, seen.now)}"
    return f"{seen.error_queue}: it is unknown how many are in it{'' if seen.remarks else '; --transport asks'}"


def _rejected(seen: "Overview") -> Iterator[tuple[str, str]]:
    """What is in rejected queues, each once, and how to look at it."""
    for one in {each.rejected_queue: each for each in seen.ingresses or () if each.rejected_depth}.values():
        command = f"delaystore errors list --messages --error-queue {shlex.quote(one.rejected_queue)}"
        told = f"{one.rejected_depth:,}{_ago(one.rejected_seen, seen.now)}"
        yield "rejected", f"{one.rejected_queue}: {told}; look at them: {command}"


def _ago(seen: datetime | None, now: datetime | None) -> str:
    """When it was so, unless that is now."""
    if seen is None or now is None or now - seen < _JUST_NOW:
        return ""
    return f", as of {duration_text(now - seen)} ago"


def _limited(one: "Destination") -> str:
    assert one.max_rate is not None
    return f"{one.name} to {limit_text(one.max_rate)}"


def _paused(one: "Destination") -> str:
    return one.name if one.paused_until is None else f"{one.name} until {time_text(one.paused_until)}"


def _dispatcher(one: "DispatcherRecord", now: datetime | None) -> tuple[str, ...]:
    return (one.name, *_whereabouts(one, now), rate_text(one.rate), "; ".join(_troubles(one)) or "well")


def _ingress(one: "IngressRecord", now: datetime | None) -> tuple[str, ...]:
    if now is not None and one.is_gone(now):
        state = "gone: it died, or cannot reach the store"
    else:
        kept_back = [f"{one.kept_back:,} kept back: {one.why_kept_back}"] if one.kept_back else []
        state = "; ".join([*_troubles(one), *kept_back]) or "well"
    return (one.queue, *_whereabouts(one, now), f"{one.stored:,}", f"{one.rejected:,}", state)


def _troubles(one: "DispatcherRecord | IngressRecord") -> list[str]:
    """What it says hinders it, and its breakers."""
    return [*([one.problem] if one.problem else []), *_breakers(one)]


def _whereabouts(one: "DispatcherRecord | IngressRecord", now: datetime | None) -> tuple[str, ...]:
    """Process, version, since when, and when it last told."""
    since, beat = ("?" if now is None else duration_text(now - time) for time in (one.since, one.beat))
    return f"{one.pid} on {one.host}", one.version, since, f"{beat} ago"


def _breakers(one: "DispatcherRecord | IngressRecord") -> list[str]:
    return [f"{name} {state}" for name, state in one.breakers.items() if state != "disarmed"]


def _size(size: "TableSize") -> tuple[str, ...]:
    numbers = ("?" if number is None else f"{number:,}" for number in (size.rows, size.dead_rows))
    return (size.name, *numbers, _bytes(size.data_bytes), _bytes(size.index_bytes))


def _bytes(number: int | None) -> str:
    if number is None:
        return "?"
    return f"{number / 2**20:,.1f} MiB" if number >= 2**20 else f"{number / 2**10:,.1f} KiB"
