"""Options and reports of `delaystore migrate`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.cli._options import environment_option, require_file, required, url_option
from delaystore.cli._output import print_document, print_note, print_table
from delaystore.cli._signals import second_signal_ends
from delaystore.errors import ConfigurationError, DelaystoreError, MigrationError
from delaystore.stores.documents import instant
from delaystore.text import counted, parse_instant, time_text

if TYPE_CHECKING:
    from delaystore.migrations.abc import (
        MigrationRun,
        MigrationSource,
        MigrationTarget,
        Problem,
        Rejected,
        RejectedRows,
        Report,
        RunCounts,
    )
    from delaystore.migrations.runner import RunCheck, RunVerification

AllowRejected = Annotated[
    bool,
    environment_option(
        "--allow-rejected",
        "Continue although some messages cannot move; they are rejected, and abort gives them back.",
        group="migrate",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """Source, target and endpoints of a migration, as given on the command line.

    All commands take all of these options, so that a line can be repeated with another command.
    """

    source: Annotated[
        str | None,
        url_option(
            "--from",
            "Source: a store's URL, nservicebus-sql+URL, msmq-sql+URL, nhibernate+URL, "
            "apscheduler+URL?destination=QUEUE, file:///PATH.",
            group="migrate",
        ),
    ] = None
    target: Annotated[
        str | None,
        url_option(
            "--to",
            "Target: amqp://...?delays=nservicebus-v2, amqp://... for due messages, a store's URL, or "
            "noop: (noop:URL), a dry run.",
            group="migrate",
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        environment_option("--endpoint", "Endpoint to migrate.", metavar="NAME", group="migrate"),
    ] = None
    all_endpoints: Annotated[
        bool, environment_option("--all-endpoints", "All endpoints of the source.", group="migrate")
    ] = False
    due_after: Annotated[
        str | None,
        environment_option(
            "--due-after",
            "Move only messages due at this time or later; the others stay.",
            metavar="TIME",
            group="migrate",
        ),
    ] = None

    @contextmanager
    def open_source(self) -> Iterator["MigrationSource"]:
        """The source, for the block, in which a second interrupt ends the process at once.

        ConfigurationError where none is given, or its SQLite file does not exist.
        """
        from delaystore.migrations.sources import open_source

        given = required(self.source, "source", "--from URL", "DELAYSTORE_MIGRATE_FROM")
        require_file(given)
        with second_signal_ends(), closing(open_source(given)) as source:
            yield source

    @contextmanager
    def open_target(self, endpoint: str) -> Iterator["MigrationTarget"]:
        """The target for one endpoint, for the block.

        ConfigurationError where none is given, or the URL cannot work.
        """
        from delaystore.migrations.targets import open_target

        with closing(open_target(self.require_target(), endpoint)) as target:
            yield target

    def require_target(self) -> str:
        """The target's URL; ConfigurationError where none is given."""
        return required(self.target, "target", "--to URL", "DELAYSTORE_MIGRATE_TO")

    def check_different(self) -> None:
        """ConfigurationError where both URLs are one store: a run would move messages into the table they are in."""
        if self.source and self.target and _same(self.source, self.target):
            raise ConfigurationError(
                "--from and --to are the same database, so source and target would be one table; give another --to"
            )

    def check_endpoints(self) -> None:
        """ConfigurationError unless either an endpoint or --all-endpoints is given."""
        if self.endpoint and self.all_endpoints:
            raise ConfigurationError("pass --endpoint NAME or --all-endpoints, not both")
        if not self.endpoint and not self.all_endpoints:
            raise ConfigurationError(
                "pass --endpoint NAME, or --all-endpoints; migrate does not read DELAYSTORE_ENDPOINT"
            )

    def endpoints(self, source: "MigrationSource", *, begun: bool = False) -> Sequence[str]:
        """The endpoint given, or all of the source's (`begun`: that have a run).

        ConfigurationError where the source has no endpoint, MigrationError where none of them has a run.
        """
        if self.endpoint:
            return [self.endpoint]
        endpoints = source.endpoints()
        if not endpoints:
            raise ConfigurationError(f"there is no table of an endpoint in {source.label}; check the URL")
        if not begun:
            return endpoints
        with_run = [name for name in endpoints if source.run(name) is not None]
        if not with_run:
            raise MigrationError(f"there is no run of any endpoint in {source.label}")
        return with_run

    def cutoff(self) -> datetime | None:
        """The cut-off in UTC; None: none is given. ConfigurationError for a text that is no time with an offset."""
        return None if self.due_after is None else parse_instant(self.due_after, "--due-after").astimezone(UTC)


def _same(one: str, other: str) -> bool:
    """Whether both are stores in one SQL database: there an endpoint has one table."""
    from delaystore.stores.sql.dialects import STORE_DIALECTS

    schemes = {url.partition(":")[0].partition("+")[0].lower() for url in (one, other)}
    if not schemes <= STORE_DIALECTS.keys():
        return False
    from delaystore.stores.sql.engine import create_store_engine, same_database
    from delaystore.stores.sql.errors import configuration_errors
    from delaystore.stores.sql.urls import database_url

    with configuration_errors():
        databases = [database_url(url).difference_update_query(["schema", "table"]) for url in (one, other)]
    return same_database(*map(create_store_engine, databases))


REJECTED_REMAIN: Final = 3
"""The exit code of a command that has done all it could, where rejected rows remain."""
COUNTS: Final = ("prepared", "moved", "rejected", "returned", "pending")
_DESTINATIONS_SHOWN: Final = 20
_LEFT_SHOWN: Final = 20


def print_checks(found: "Sequence[RunCheck]") -> None:
    """A table of the endpoints, and one of their destinations."""
    rows = [
        (
            one.endpoint,
            "?" if one.waiting is None else f"{one.waiting.count:,}",
            f"{one.immovable:,}",
            "?" if one.waiting is None else f"{one.waiting.staying:,}",
            "" if one.waiting is None else time_text(one.waiting.earliest),
            "" if one.waiting is None else time_text(one.waiting.latest),
        )
        for one in found
    ]
    columns = ("endpoint", "messages", "cannot move", "left out", "earliest", "latest")
    print_table(columns, rows, right=columns[1:4], unbroken=columns[4:])
    destinations = [
        (one.endpoint, destination, f"{count:,}")
        for one in found
        if one.waiting is not None
        for destination, count in _most(one.waiting.destinations)
    ]
    if destinations:
        print_table(("endpoint", "destination", "messages"), destinations, right=("messages",))


def print_problems(problems: "Sequence[Problem]") -> None:
    """A table of the problems, where there are any."""
    rows = [
        (
            "blocks" if one.fatal else "warning",
            one.subject,
            one.text + (f" ({counted(one.messages, 'message')})" if one.messages else ""),
        )
        for one in problems
    ]
    if rows:
        print_table(("problem", "of", "what"), rows, unbroken=("problem",))


def print_counts(rows: "Sequence[tuple[str, RunCounts]]") -> None:
    """A table of the results of the rows of each endpoint."""
    cells = [(endpoint, *count_cells(counts)) for endpoint, counts in rows]
    print_table(("endpoint", *COUNTS), cells, right=COUNTS)


def count_cells(counts: "RunCounts") -> list[str]:
    """The cells of the columns `COUNTS`."""
    return [f"{getattr(counts, name):,}" for name in COUNTS]


def say_rejections(rejections: "Sequence[Rejected]", count: int) -> None:
    """A line for each, and one for how many more of `count` there are."""
    for one in rejections:
        print_note(f"rejected: {one.row_id}: {one.reason}")
    if count > len(rejections):
        print_note(f"rejected: and {count - len(rejections):,} more")


def say_left(name: str, left: "Sequence[Rejected]") -> None:
    """A line for each of the first rows that stay in their table, and one for how many there are."""
    for one in left[:_LEFT_SHOWN]:
        print_note(f"left: {one.row_id}: {one.reason}")
    if left:
        print_note(f"{name}: {counted(len(left), 'row')} left in the table: the program that keeps it still finds them")


def print_rejected(name: str, count: int, earlier: "Sequence[RejectedRows]") -> None:
    """The remaining rejected rows, if any: `count` of the last run, the others of `earlier` ones."""
    parts = [f"{count:,} of the last run"] if count else []
    parts += [f"{one.count:,} of the run begun {time_text(one.run.started)}" for one in earlier]
    if parts:
        print_note(
            f"{name}: rejected, and hidden from every dispatcher: {', '.join(parts)}; status --list-rejected says why, "
            "abort gives them back"
        )


class Asking:
    """Asks whether to go on, unless --yes is given. An interrupt ends the question at once.

    ConfigurationError where no terminal can be asked. `step`: the step to confirm, as in "the move".
    """

    def __init__(self, step: str, *, yes: bool) -> None:
        if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
            raise ConfigurationError(f"no terminal confirms {step}; pass --yes")
        self._yes = yes
        self._asking = False

    def confirm(self, question: str) -> bool:
        """Whether to go on; False where the input ends."""
        if self._yes:
            return True
        self._asking = True
        try:
            return typer.confirm(question, err=True)
        except typer.Abort:
            return False
        finally:
            self._asking = False

    def interrupted(self) -> None:
        """Called in the main thread when a signal has come."""
        if self._asking:
            raise KeyboardInterrupt


@contextmanager
def collected(as_json: bool) -> Iterator[dict[str, Any]]:
    """A document to fill, printed at the block's end; and where the block fails after an endpoint, with the error."""
    document: dict[str, Any] = {"endpoints": []}
    try:
        yield document
    except DelaystoreError as error:
        if as_json and document["endpoints"]:
            print_document({**document, "error": " ".join(str(error).split())})
        raise
    if as_json:
        print_document(document)


def check_document(checked: "RunCheck") -> dict[str, Any]:
    """The known facts about an endpoint before a run."""
    waiting = checked.waiting
    return {
        "endpoint": checked.endpoint,
        "count": None if waiting is None else waiting.count,
        "staying": None if waiting is None else waiting.staying,
        "earliest": None if waiting is None else instant(waiting.earliest),
        "latest": None if waiting is None else instant(waiting.latest),
        "destinations": {} if waiting is None else dict(waiting.destinations),
        "immovable": checked.immovable,
        "problems": [
            {"subject": one.subject, "text": one.text, "blocks": one.fatal, "messages": one.messages}
            for one in checked.problems
        ],
        "unfinished_run": run_document(checked.unfinished),
        "earlier_rejected": rejected_documents(checked.earlier),
    }


def run_document(run: "MigrationRun | None") -> dict[str, Any] | None:
    """A run as its source remembers it."""
    if run is None:
        return None
    return {
        "run_id": run.run_id,
        "status": run.status.value,
        "target": run.parameters.target,
        "cutoff": instant(run.parameters.cutoff),
        "batch_size": run.parameters.batch_size,
        "started": instant(run.started),
        "completed": instant(run.completed),
    }


def rejected_documents(earlier: "Sequence[RejectedRows]") -> list[dict[str, Any]]:
    """What earlier runs have rejected and still keep."""
    return [{"run": run_document(one.run), "rejected": one.count} for one in earlier]


def report_document(endpoint: str, report: "Report") -> dict[str, Any]:
    """The result of a run or an abort."""
    return {
        "endpoint": endpoint,
        "run": run_document(report.run),
        "counts": asdict(report.counts),
        "seconds": round(report.seconds, 3),
        "sent": report.sent,
        "rate": None if not report.seconds else round(report.sent / report.seconds, 1),
        "resumed": report.resumed,
        "rejections": [asdict(one) for one in report.rejections],
        "left": len(report.left),
        "left_rows": [{"row_id": one.row_id, "reason": one.reason} for one in report.left[:_LEFT_SHOWN]],
        "earlier_rejected": rejected_documents(report.earlier),
        **report.extra,
    }


def verification_document(endpoint: str, verified: "RunVerification") -> dict[str, Any]:
    """The findings of `verify`."""
    return {
        "endpoint": endpoint,
        "good": verified.good,
        "run": run_document(verified.run),
        "counts": asdict(verified.counts),
        "source_checksum": str(verified.moved),
        "target_checksum": None if verified.waiting is None else str(verified.waiting),
        "no_longer_there": verified.no_longer_there,
        "findings": list(verified.findings),
        "earlier_rejected": rejected_documents(verified.earlier),
        "remarks": list(verified.remarks),
    }


def _most(destinations: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(destinations.items(), key=lambda item: (-item[1], item[0]))
    shown, more = ordered[:_DESTINATIONS_SHOWN], ordered[_DESTINATIONS_SHOWN:]
    return shown + ([(f"and {counted(len(more), 'more')}", sum(count for _, count in more))] if more else [])
