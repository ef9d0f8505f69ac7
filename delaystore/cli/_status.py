"""`delaystore status`, once or as a screen."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.cli._health import Deadline, HealthOptions, StoreReport, shown_error_queue_option
from delaystore.cli._options import DEFAULT_ERROR_QUEUE, DispatchedEndpoint, EndpointOptions, JsonOption, WatchOptions
from delaystore.cli._output import about, print_document, printable, table_lines, write
from delaystore.errors import ConfigurationError, StoreError
from delaystore.stores.documents import LatenessHistogram
from delaystore.text import duration_text, limit_text, named, rate_text, roughly, time_text, up_to

if TYPE_CHECKING:
    from delaystore.cli._options import OpenedEndpoint
    from delaystore.operations.overview import HealthCriteria, Overview, Recent
    from delaystore.stores.records import Destination, DispatcherRecord, IngressRecord
    from delaystore.stores.sql.faults import TableSize

WINDOWS: Final = (1, 5, 60)
"""Minutes."""
COLUMNS: Final = ("last", "delivered", "failed", "to error queue", "expired", "rate", "late p50", "p90", "p99")


def recent_row(recent: "Recent") -> tuple[str, ...]:
    """Its cells, as of COLUMNS."""
    done = recent.done
    counts = (done.delivered, done.failed, done.moved_to_error_queue, done.expired)
    late = (_lateness(done.lateness, percent) for percent in (50, 90, 99))
    return (f"{recent.minutes} min", *(f"{count:,}" for count in counts), rate_text(recent.rate), *late)


def _lateness(lateness: LatenessHistogram, percent: int) -> str:
    seconds = lateness.percentile(percent)
    return "-" if seconds is None else duration_text(timedelta(seconds=seconds))


_LEFT_OUT: Final = ("activity", "rate", "lateness")
"""Of an overview: `recent` says more."""


def status(
    *,
    again: WatchOptions,
    must: HealthOptions,
    where: DispatchedEndpoint,
    error_queue: Annotated[str, shown_error_queue_option("status")] = DEFAULT_ERROR_QUEUE,
    as_json: JsonOption = False,
) -> None:
    """Show the state of an endpoint on one screen.

    The screen shows waiting, failing and parked messages, dispatchers, rates, lateness and tables. Without --endpoint
    it shows one line for each endpoint of the database. More than 100,000 messages and the rows of tables are
    estimated; failing and parked messages are counted up to 10,000. A "?" means that the database does not report the
    value. --watch refreshes the screen until Ctrl-C; with --json it prints one document a line.
    """
    criteria = must.criteria()
    seconds = again.seconds()
    Deadline(must.timeout)
    if not where.endpoint:
        _list_endpoints(where, must.timeout, watch=again.watch, as_json=as_json)
        return
    from delaystore.cli._options import reading

    with where.open(reading(error_queue)) as opened:
        first = _Status.of(opened, must.timeout, criteria)
        if not again.watch:
            _print(first, as_json=as_json)
            if first.report.faults(criteria):
                raise typer.Exit(1)
            return
        _watch(first, opened, must.timeout, seconds, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Status:
    """How an endpoint is. `sizes`: of its tables; empty: the store has none. None: no answer in time."""

    report: StoreReport
    criteria: "HealthCriteria"
    sizes: "Sequence[TableSize] | None"

    @classmethod
    def of(cls, opened: "OpenedEndpoint", timeout: str, criteria: "HealthCriteria") -> "_Status":
        """As it is now; raises StoreError."""
        deadline = Deadline(timeout)
        report = deadline.report(opened)
        return cls(report, criteria, _sizes(deadline, opened))

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        seen = self.report.overview
        known = {name: value for name, value in seen.as_dict().items() if name not in _LEFT_OUT}
        recent = [found.as_dict() for minutes in WINDOWS if (found := seen.recent(minutes)) is not None]
        faults = self.report.faults(self.criteria)
        return {
            "endpoint": seen.endpoint,
            "healthy": not faults,
            "problems": list(faults),
            **known,
            "recent": recent or None,
            "tables": None if self.sizes is None else [asdict(size) for size in self.sizes],
            **({} if self.report.problem is None else {"store": self.report.problem}),
        }


def _print(found: _Status, *, as_json: bool) -> None:
    if as_json:
        print_document(found.document())
        return
    write("".join(f"{line}\n" for line in status_lines(found.report, found.criteria, found.sizes)))


def _watch(first: _Status, opened: "OpenedEndpoint", timeout: str, seconds: float, *, as_json: bool) -> None:
    from delaystore.cli._signals import watch

    def document() -> dict[str, Any]:
        try:
            return _Status.of(opened, timeout, first.criteria).document()
        except StoreError as error:
            return {"endpoint": opened.endpoint, "healthy": False, "problems": [str(error)], "store": str(error)}

    def lines() -> list[str]:
        try:
            found = _Status.of(opened, timeout, first.criteria)
            return status_lines(found.report, found.criteria, found.sizes)
        except StoreError as error:
            return [f"{'endpoint':<13}{opened.endpoint}", f"{'health':<13}unhealthy: {error}"]

    watch(lines, document, seconds, as_json=as_json)


def _list_endpoints(where: EndpointOptions, timeout: str, *, watch: bool, as_json: bool) -> None:
    from delaystore.cli._setup import endpoints

    if watch:
        raise ConfigurationError("--watch shows one endpoint; pass --endpoint NAME or set DELAYSTORE_ENDPOINT")
    endpoints(timeout=timeout, where=where, as_json=as_json)


def _sizes(deadline: Deadline, opened: "OpenedEndpoint") -> "Sequence[TableSize] | None":
    from delaystore.stores.sql import SqlDelayedMessageStore

    if not isinstance(opened.store, SqlDelayedMessageStore):
        return ()
    return deadline.answer("asking for sizes", opened.store.sizes)


_PLACE = ("process", "version", "since", "heartbeat")
_NUMBERS = ("since", "heartbeat", "rate", "stored", "rejected")
_JUST_NOW = timedelta(seconds=1)
_SIZES = ("rows", "dead rows", "data", "indexes")


def status_lines(report: StoreReport, criteria: "HealthCriteria", sizes: "Sequence[TableSize] | None") -> list[str]:
    """All of it; `sizes` None: they were not known in time. Raises OutputError."""
    seen = report.overview
    lines = [f"{name:<13}{printable(text)}" for name, text in _facts(report, criteria)]
    if seen.dispatchers:
        rows = [_dispatcher(each, seen.now) for each in seen.dispatchers]
        lines += ["", *table_lines(("dispatcher", *_PLACE, "rate", "state"), rows, right=_NUMBERS)]
    if seen.ingresses:
        rows = [_ingress(each, seen.now) for each in seen.ingresses]
        lines += ["", *table_lines(("ingress", *_PLACE, "stored", "rejected", "state"), rows, right=_NUMBERS)]
    if seen.activity is not None and seen.now is not None:
        from delaystore.operations.overview import Recent

        recent = [recent_row(Recent.of(seen.activity, seen.now, minutes)) for minutes in WINDOWS]
        lines += ["", *table_lines(COLUMNS, recent, right=COLUMNS)]
    if sizes:
        lines += ["", *table_lines(("table", *_SIZES), [_size(size) for size in sizes], right=_SIZES)]
    return lines


def _facts(report: StoreReport, criteria: "HealthCriteria") -> Iterator[tuple[str, str]]:
    seen, faults = report.overview, report.faults(criteria)
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
    if seen.paused_loads:
        yield "paused load", named(seen.paused_loads)
    if report.problem is None or seen.error_queue_depth is not None:
        yield "error queue", _error_queue(seen)
    yield from _rejected(seen)
    if seen.history is not None and seen.history.kept is not None:
        size = "" if seen.history.entries is None else f", {roughly(seen.history.entries)} entries"
        yield "history", f"since {time_text(seen.history.since)}, kept for {duration_text(seen.history.kept)}{size}"
    yield from (("history", gap) for gap in seen.history_gaps)
    for running in seen.operations or ():
        changed = f"{running.changed:,} changed so far, by {running.by}"
        hint = f"; if no process works on it, {running.resume_command}"
        yield "operation", f"{running.operation_id}: {running.kind} ({running.wanted}): {changed}{hint}"
    yield from _problems(report)


def _times(seen: "Overview") -> Iterator[tuple[str, str]]:
    if seen.first_due is not None and seen.now is not None:
        ahead = seen.first_due - seen.now
        when = f"in {duration_text(ahead)}" if ahead > timedelta(0) else f"{duration_text(-ahead)} ago"
        yield "first due", f"{time_text(seen.first_due)}, {when}"
    if seen.overdue is not None:
        yield "overdue", f"the oldest for {duration_text(seen.overdue)}" if seen.overdue else "nothing"


def _problems(report: StoreReport) -> Iterator[tuple[str, str]]:
    """Problems that the lines above do not show."""
    seen = report.overview
    if report.no_dispatcher:
        yield "dispatchers", "none is running, and messages are overdue"
    elif seen.dispatchers is not None and not seen.dispatchers:
        yield "dispatchers", "none is running"
    if seen.operable is False:
        yield "tables", "of an earlier release; `delaystore setup` upgrades them, and then status shows more"
    if seen.problem is not None and report.problem is None:
        yield "unknown", seen.problem
    for remark in seen.remarks:
        yield "unknown", remark


def _error_queue(seen: "Overview") -> str:
    if seen.error_queue_depth is not None:
        return f"{seen.error_queue}: {seen.error_queue_depth:,}{_ago(seen.error_queue_seen, seen.now)}"
    return f"{seen.error_queue}: it is unknown how many are in it{'' if seen.remarks else '; --transport asks'}"


def _rejected(seen: "Overview") -> Iterator[tuple[str, str]]:
    """Rejected queues with messages, each once, and how to list them."""
    for one in {each.rejected_queue: each for each in seen.ingresses or () if each.rejected_depth}.values():
        command = f"delaystore errors list --messages --error-queue {shlex.quote(one.rejected_queue)}"
        count = f"{one.rejected_depth:,}{_ago(one.rejected_seen, seen.now)}"
        yield "rejected", f"{one.rejected_queue}: {count}; look at them: {command}"


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
    if now is not None and one.is_offline(now):
        state = "offline: it died, or cannot reach the store"
    else:
        unacknowledged = (
            [f"{one.unacknowledged:,} unacknowledged: {one.why_unacknowledged}"] if one.unacknowledged else []
        )
        state = "; ".join([*_troubles(one), *unacknowledged]) or "well"
    return (one.queue, *_whereabouts(one, now), f"{one.stored:,}", f"{one.rejected:,}", state)


def _troubles(one: "DispatcherRecord | IngressRecord") -> list[str]:
    """Its own obstacles, and its breakers."""
    return [*([one.problem] if one.problem else []), *_breakers(one)]


def _whereabouts(one: "DispatcherRecord | IngressRecord", now: datetime | None) -> tuple[str, ...]:
    """Process, version, since when, and its last heartbeat."""
    since, heartbeat = ("?" if now is None else duration_text(now - time) for time in (one.since, one.heartbeat))
    return f"{one.pid} on {one.host}", one.version, since, f"{heartbeat} ago"


def _breakers(one: "DispatcherRecord | IngressRecord") -> list[str]:
    return [f"{name} {state}" for name, state in one.breakers.items() if state != "disarmed"]


def _size(size: "TableSize") -> tuple[str, ...]:
    numbers = ("?" if number is None else f"{number:,}" for number in (size.rows, size.dead_rows))
    return (size.name, *numbers, _bytes(size.data_bytes), _bytes(size.index_bytes))


def _bytes(number: int | None) -> str:
    if number is None:
        return "?"
    return f"{number / 2**20:,.1f} MiB" if number >= 2**20 else f"{number / 2**10:,.1f} KiB"
