"""`delaystore schedules`: recurring schedules, one by one, or all of a file."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from zoneinfo import ZoneInfo

import typer

from delaystore.cli._changing import ActorName
from delaystore.cli._commands import add_commands, plain_group
from delaystore.cli._options import (
    BodyFile,
    DispatchedEndpoint,
    DryRunOption,
    HeaderOption,
    HeadersJson,
    JsonBody,
    JsonOption,
    StoredEndpoint,
    Wide,
    YesOption,
    property_option,
)
from delaystore.cli._output import (
    can_ask,
    confirm,
    print_document,
    print_line,
    print_note,
    print_table,
    printable,
    write,
)
from delaystore.cli._send import body_of, headers_of, properties_of, warn_if_unreachable
from delaystore.schedules import CatchUp, IfWaiting, Schedule, Schedules, ScheduleState
from delaystore.schedules.editing import unknown
from delaystore.stores import documents
from delaystore.stores.records import Way
from delaystore.text import counted, duration_text, named, parse_instant, time_text

if TYPE_CHECKING:
    from delaystore.cli._options import OpenedEndpoint
    from delaystore.schedules import ScheduleChanges

_NEXT: Final = 5
"""Times that `put` shows."""
_PAUSED: Final = "the schedule is paused; dispatchers make these runs once you resume it"
ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule, as reports/weekly.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """When a schedule is due, and how its times are applied, as given on the command line."""

    cron: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Cron expression of five fields, or six with seconds first.")
    ] = None
    every: Annotated[str | None, typer.Option(metavar="DURATION", help="Interval: 30s, 5m, 2h, 2d.")] = None
    at: Annotated[
        str | None, typer.Option(metavar="HH:MM", help="Local time, with --every of whole days, as 09:00.")
    ] = None
    zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Time zone of --cron and --at, as Europe/Berlin. Default: UTC.")
    ] = None
    both_days: Annotated[
        bool,
        typer.Option("--both-days", help="Day of month and day of week must both match. Default: one is enough."),
    ] = False
    starts: Annotated[
        str | None, typer.Option(metavar="TIME", help="No run before this time; --every counts from it.")
    ] = None
    ends: Annotated[str | None, typer.Option(metavar="TIME", help="No run after this time.")] = None
    max_runs: Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="Number of runs in all.")] = None
    catch_up: Annotated[CatchUp, typer.Option(help="Missed runs to make when dispatchers work again.")] = CatchUp.LAST
    max_late: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Make and deliver no run that is later than this.")
    ] = None
    jitter: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Delay each run by up to this long, to spread load.")
    ] = None
    if_waiting: Annotated[IfWaiting, typer.Option(help="Whether to make a run while an earlier one still waits.")] = (
        IfWaiting.ALLOW
    )

    def given(self) -> dict[str, Any]:
        """The options as arguments of `Schedule.of`; raises ConfigurationError."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "starts": None if self.starts is None else parse_instant(self.starts, "--starts"),
            "ends": None if self.ends is None else parse_instant(self.ends, "--ends"),
        }


def put(
    name: ScheduleName,
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="Body, as UTF-8 text. Default: empty.")] = None,
    *,
    rule: RuleOptions,
    to: Annotated[str, typer.Option(metavar="DESTINATION", help="A queue, /queues/NAME or /exchanges/NAME/KEY.")],
    header: HeaderOption = None,
    headers_json: HeadersJson = None,
    property_: Annotated[list[str] | None, property_option("schedules_put")] = None,
    body_file: BodyFile = None,
    json_body: JsonBody = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the next runs; change nothing.")] = False,
    actor: ActorName = None,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Create a schedule, or change it.

    Pass --to, and --cron or --every. Each run is an ordinary message, whose id is schedule/NAME/UTC-TIME. A changed
    schedule applies at once to all runs that no dispatcher has claimed. If the schedule is the same already, nothing
    changes. Prints the next times.
    """
    schedule = Schedule.of(
        name,
        destination=to,
        body=body_of(body, body_file, json_body),
        headers=headers_of(header, headers_json),
        properties=properties_of(property_, json_body),
        **rule.given(),
    )
    with where.open() as opened:
        schedules = _acting(opened, actor)
        result = schedules.put_schedule(schedule, dry_run=dry_run)
        times = schedules.preview(schedule, _NEXT) if dry_run else schedules.upcoming(name, _NEXT)
        known = schedules.get(name)
        if as_json:
            print_document({"name": name, "dry_run": dry_run, "result": result, **_times(schedule, times)})
        else:
            print_line(f"{'would be ' if dry_run else ''}{result}: {name} ({schedule.rule})")
            _print_times(schedule, times)
        if known is not None and known.paused:
            print_note(_PAUSED)
        warn_if_unreachable(opened, where, to)


def list_schedules(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="Only schedules whose names begin with this text.")
    ] = "",
    after: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only names behind this one, the last of the page before.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Maximum number of schedules on a page.")
    ] = 100,
    wide: Wide = False,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """List schedules by name."""
    with where.open() as opened:
        found = opened.delivery.schedules.list(prefix, after=after, limit=limit + 1)
    found, following = found[:limit], found[limit - 1].name if len(found) > limit else None
    if as_json:
        print_document({"schedules": [each.as_dict() for each in found], "next": following})
        return
    rows = [
        (
            each.name,
            str(each.schedule.rule),
            each.schedule.destination,
            time_text(each.next_time),
            time_text(each.last_time),
            _state(each),
        )
        for each in found
    ]
    columns = ("name", "rule", "destination", "next", "last", "state")
    print_table(columns, rows, unbroken=("next", "last", "state"), wide=wide)
    if following is not None:
        print_note(f"more follow; the next page: --after {shlex.quote(following)}")


def show(name: ScheduleName, *, where: StoredEndpoint, as_json: JsonOption = False) -> None:
    """Show a schedule, and the numbers of its runs."""
    with where.open() as opened:
        found = opened.delivery.schedules.get(name)
    if found is None:
        raise unknown(name)
    if as_json:
        print_document(found.as_dict())
    else:
        write("".join(f"{line}\n" for line in _lines(found)))


def upcoming(
    name: ScheduleName,
    count: Annotated[int, typer.Option(min=1, max=10_000, metavar="NUMBER", help="Number of times.")] = 5,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Show the next times of a schedule.

    The table has each time in UTC and in the time zone of the schedule. Skipped runs are left out. A paused schedule
    shows the times at which it would run after `delaystore schedules resume`.
    """
    with where.open() as opened:
        schedules = opened.delivery.schedules
        times, found = schedules.upcoming(name, count), schedules.get(name)
    if found is None:  # deleted meanwhile
        raise unknown(name)
    if as_json:
        print_document({"name": name, "paused": found.paused, **_times(found.schedule, times)})
        return
    _print_times(found.schedule, times)
    if found.paused:
        print_note(_PAUSED)


def pause(name: ScheduleName, actor: ActorName = None, *, where: StoredEndpoint, as_json: JsonOption = False) -> None:
    """Pause a schedule.

    Runs that are not due yet are deleted. Runs that are due, and wait for a dispatcher or a retry, are delivered.
    """
    with where.open() as opened:
        is_done = _acting(opened, actor).pause(name)
    _report(name, "paused", "paused already", is_done=is_done, as_json=as_json)


def resume(name: ScheduleName, actor: ActorName = None, *, where: StoredEndpoint, as_json: JsonOption = False) -> None:
    """Resume a paused schedule.

    It goes on with the next run. Runs of the time in which it was paused are not made; to make them, use `delaystore
    schedules backfill`.
    """
    with where.open() as opened:
        is_done = _acting(opened, actor).resume(name)
    _report(name, "resumed", "not paused", is_done=is_done, as_json=as_json)


def skip(
    name: ScheduleName,
    at: Annotated[str, typer.Option(metavar="TIME", help="Time of the run, as `schedules upcoming` shows it.")],
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Leave out one future run of a schedule."""
    instant = parse_instant(at, "--at")
    with where.open() as opened:
        is_done = _acting(opened, actor).skip(name, instant)
    what = f"{name} at {time_text(instant)}"
    _report(name, "skipped", "being dispatched", what, is_done=is_done, as_json=as_json)


def trigger(name: ScheduleName, actor: ActorName = None, *, where: StoredEndpoint, as_json: JsonOption = False) -> None:
    """Make one run of a schedule now.

    The run is made besides the runs of the rule, also if the schedule is paused. Prints the message id.
    """
    with where.open() as opened:
        message_id = _acting(opened, actor).trigger(name)
    if as_json:
        print_document({"name": name, "message_id": message_id})
    else:
        print_line(message_id)


def backfill(
    name: ScheduleName,
    since: Annotated[str, typer.Option(metavar="TIME", help="Make runs from this time on.")],
    until: Annotated[str, typer.Option(metavar="TIME", help="Make runs up to this time, which must be past.")],
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Make the runs of a past time, due now.

    Runs that still wait are left out. Runs that were delivered are delivered again, with the same message id. Each has
    the header `delaystore.backfilled`. At most 10,000 runs are made.
    """
    first, last = parse_instant(since, "--since"), parse_instant(until, "--until")
    with where.open() as opened:
        made = _acting(opened, actor).backfill(name, first, last)
    if as_json:
        print_document({"name": name, "made": made})
    else:
        print_line(f"backfilled: {name} ({counted(made, 'run')})")


def delete(
    name: ScheduleName,
    yes: YesOption = False,
    actor: ActorName = None,
    *,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Delete a schedule and its waiting runs.

    At a terminal the command asks first. A run that a dispatcher has claimed is delivered.
    """
    with where.open() as opened:
        schedules = _acting(opened, actor)
        if not yes and can_ask() and schedules.get(name) is not None:
            confirm(f"Delete the schedule {name!r} and its waiting runs?", "nothing is deleted")
        if not schedules.delete(name):
            raise unknown(name)
    _report(name, "deleted", "", is_done=True, as_json=as_json)


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file, or JSON if its name ends with .json.")],
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Beginning of all names, in place of the file's prefix.")
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    actor: ActorName = None,
    *,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Make the schedules below a prefix those of a file.

    The command creates, changes and deletes schedules, all or nothing. Schedules whose names do not begin with the
    prefix are left alone. At a terminal the command asks before it deletes schedules. The output marks created (+),
    changed (~), deleted (-) and unchanged (=) schedules.
    """
    from delaystore.schedules.documents import schedule_file

    wanted = schedule_file(file, prefix)
    with where.open() as opened:
        schedules = _acting(opened, actor)
        if not (dry_run or yes) and can_ask():
            deleted = schedules.put_all(wanted.schedules, prefix=wanted.prefix, dry_run=True).deleted
            if deleted:
                what = counted(len(deleted), "schedule")
                confirm(f"Delete {what}, with all waiting runs: {named(deleted)}?", "nothing is changed")
        changes = schedules.put_all(wanted.schedules, prefix=wanted.prefix, dry_run=dry_run)
    if as_json:
        print_document({"prefix": wanted.prefix, "dry_run": dry_run, **changes.as_dict()})
    else:
        for line in _diff(changes):
            print_line(line)
        if dry_run:
            print_note("nothing is changed")


def _acting(opened: "OpenedEndpoint", actor: str | None) -> Schedules:
    """The endpoint's schedules, in the name that --actor says."""
    return opened.delivery.schedules_as(Way.CLI, actor)


def _report(name: str, done: str, otherwise: str, what: str | None = None, *, is_done: bool, as_json: bool) -> None:
    """Report a change, or why there was none, and then raise typer.Exit. `what`: the subject, if it is not `name`."""
    if as_json:
        print_document({"name": name, "result": done if is_done else otherwise})
    elif is_done:
        print_line(f"{done}: {what or name}")
    else:
        print_note(f"{otherwise}: {what or name}")
    if not is_done:
        raise typer.Exit(1)


def _diff(changes: "ScheduleChanges") -> Iterator[str]:
    for mark, names in (("+", changes.created), ("~", changes.changed), ("-", changes.deleted)):
        yield from (f"{mark} {name}" for name in names)
    yield f"= {changes.unchanged:,} unchanged"


def _times(schedule: Schedule, times: Sequence[datetime]) -> dict[str, Any]:
    return {"zone": schedule.rule.zone, "next_times": [documents.instant(each) for each in times]}


def _print_times(schedule: Schedule, times: Sequence[datetime]) -> None:
    """A table of the times in UTC, and in the schedule's zone if it has another."""
    if not times:
        print_note("it has no future run")
        return
    zone = ZoneInfo(schedule.rule.zone)
    columns = ("next", schedule.rule.zone)[: 1 if schedule.rule.zone == "UTC" else 2]
    rows = [(time_text(each), f"{each.astimezone(zone):%a %Y-%m-%d %H:%M:%S%z}")[: len(columns)] for each in times]
    print_table(columns, rows, unbroken=columns)


def _state(state: ScheduleState) -> str:
    return "paused" if state.paused else "active" if state.next_time is not None else "ended"


def _lines(state: ScheduleState) -> Iterator[str]:
    schedule = state.schedule
    options = {
        "catch up": schedule.catch_up.value,
        "if waiting": schedule.if_waiting.value,
        "max late": "" if schedule.max_late is None else duration_text(schedule.max_late),
        "jitter": duration_text(schedule.jitter) if schedule.jitter else "",
        "starts": time_text(schedule.starts),
        "ends": time_text(schedule.ends),
    }
    counts = {name: getattr(state, name) for name in ("made", "missed", "overlapped", "skipped", "remaining")}
    fields = {
        "schedule": schedule.name,
        "rule": str(schedule.rule),
        "state": _state(state),
        "next": time_text(state.next_time),
        "last": "" if state.last_id is None else f"{time_text(state.last_time)} ({state.last_id})",
        "destination": schedule.destination,
        "body": counted(len(schedule.body), "byte"),
        **{f"header {name}": str(value) for name, value in documents.plain(schedule.headers).items()},
        **{f"property {name}": str(value) for name, value in documents.plain(schedule.properties).items()},
        **options,
        **{name: f"{number:,}" for name, number in counts.items() if number is not None},
        "changed": f"{time_text(state.changed)} by {state.changed_by} (version {state.version})",
    }
    return (f"{printable(name) + ' ':<13}{printable(value)}" for name, value in fields.items() if value)


schedules_app = plain_group(
    """Create, change and pause recurring schedules.

    A schedule makes messages at the times of a cron expression or an interval. Any dispatcher of the endpoint makes
    them, up to two minutes ahead. A run is an ordinary message, so you can also list, cancel and pause it as such.
    """
)
add_commands(
    schedules_app,
    {
        "put": put,
        "list": list_schedules,
        "show": show,
        "upcoming": upcoming,
        "pause": pause,
        "resume": resume,
        "skip": skip,
        "trigger": trigger,
        "backfill": backfill,
        "apply": apply,
        "delete": delete,
    },
)
