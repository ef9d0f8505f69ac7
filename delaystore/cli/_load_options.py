"""Options and reports of `delaystore load`, which `send --file` shares."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delaystore.bulk.options import AmbiguousTime, DeliveredRows, OnDuplicate, UnknownColumns
from delaystore.cli._commands import Offered
from delaystore.cli._options import EndpointOptions, environment_option, parse_pair
from delaystore.cli._output import OutputError, bar, print_document, print_line, print_note, print_table
from delaystore.errors import ConfigurationError, DelaystoreError, DuplicateKeyError
from delaystore.message import OnKey
from delaystore.stores.documents import instant
from delaystore.text import counted, duration_text, parse_duration, time_text

if TYPE_CHECKING:
    from delaystore.bulk.files import DataFiles, Kind
    from delaystore.bulk.preview import LoadPreview
    from delaystore.bulk.rejects import Rejects
    from delaystore.bulk.request import DryRun, LoadReport
    from delaystore.bulk.staging import Cleaned, LoadStore

# What a load says, in the command line's words: `--load-id` for "the option loadId", its name elsewhere.

_WORDS: Final = re.compile("(?=[A-Z])")
NO_OTHERS: Final[Mapping[str, str]] = MappingProxyType({})


_OWN: Final[Mapping[str, str]] = MappingProxyType({"rejects": "--rejects-dir"})
"""Options whose name on the command line does not follow from Spark's option."""


def option_of(name: str, typed: Mapping[str, str] = NO_OTHERS) -> str:
    """`--load-id`, for `loadId`. `typed`: options that the command has by another name."""
    return typed.get(name) or _OWN.get(name) or f"--{_WORDS.sub('-', name).lower()}"


def _name_of(field: str) -> str:
    """`loadId`, for `load_id`; the inverse of `option_of`."""
    first, *others = field.removesuffix("_dir").split("_")
    return first + "".join(map(str.capitalize, others))


def as_typed(text: str, typed: Mapping[str, str] = NO_OTHERS) -> str:
    """`text`, with options as they are typed; `typed`: as for `option_of`."""
    return _NAMED.sub(lambda found: _NAME.sub(lambda name: option_of(name[0], typed), found[1]), text)


@contextmanager
def options_as_typed(typed: Mapping[str, str] = NO_OTHERS) -> Iterator[None]:
    """Raise errors of the block with their text `as_typed`."""
    try:
        yield
    except OutputError:
        raise
    except DuplicateKeyError as error:
        raise DelaystoreError(
            f"the message {error.message_id!r} already waits with the key {error.key!r}; use --on-key keep, replace or "
            "debounce, or cancel it first"
        ) from None
    except DelaystoreError as error:
        raise DelaystoreError(as_typed(str(error), typed)) from None


# The options of `delaystore load`. Each is an environment variable as well, as DELAYSTORE_LOAD_MASTER.
#
# `delaystore send --file` shares those of rows.

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Parquet, CSV (with a header row) or JSON lines: files, folders, globs, or URIs that Spark can read.",
    ),
]


def map_option(group: str) -> Any:
    """--map, of the command `group`."""
    return environment_option(
        "--map",
        "Column of the files for message_id, destination, due_time, delay, body, body_base64, headers or "
        "properties; repeatable.",
        metavar="NAME=COLUMN",
        group=group,
    )


def format_option(group: str, kinds: str = "csv, json or parquet") -> Any:
    """--format, of the command `group`."""
    text = f"Read the files as {kinds}, regardless of their names."
    return environment_option("--format", text, metavar="KIND", group=group)


def separator_option(group: str) -> Any:
    """--separator, of the command `group`."""
    text = "Separator of CSV columns: a character, comma, semicolon, tab or pipe. Default: found in the header line."
    return environment_option("--separator", text, metavar="SIGN", group=group)


Map = Annotated[list[str] | None, map_option("load")]
RowQueueOption = Annotated[
    str | None, typer.Option("--destination", metavar="QUEUE", help="Destination of rows without one.")
]
OnKeys = Annotated[
    OnKey | None, typer.Option(metavar="RULE", help="If in use: reject (default), keep, replace, debounce.")
]
MaxWait = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="With debounce: maximum wait after the first message."),
]


_OF_KEYS: Final = ("on_key", "max_wait")
_OF_ONE: Final = (*_OF_KEYS, "if_delivered")
"""Options of one message, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """How rows become messages, as given on the command line."""

    load_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Name of the load; a repeated load with the same name stores no row twice."),
    ] = None
    id_columns: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Columns that make up the ids of rows without message_id; needs --load-id."),
    ] = None
    key_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of deduplication keys: one waiting message per key; see --on-key."),
    ] = None
    on_key: OnKeys = None
    max_wait: MaxWait = None
    on_duplicate: Annotated[
        OnDuplicate,
        typer.Option(
            help="Result if a message_id is waiting already: load nothing, keep the waiting message, or replace it."
        ),
    ] = OnDuplicate.ERROR
    if_delivered: Annotated[
        DeliveredRows,
        typer.Option(
            help="Result if a message_id was delivered already, by the history: load the row, skip it, or load nothing."
        ),
    ] = DeliveredRows.LOAD
    unknown_columns: Annotated[
        UnknownColumns,
        typer.Option(
            help="Result for columns that are not part of a message: refuse, store as headers or body, or ignore."
        ),
    ] = UnknownColumns.ERROR
    time_zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Time zone of times without one, such as Europe/Berlin.")
    ] = None
    zone_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of each row's time zone; before --time-zone.")
    ] = None
    ambiguous_time: Annotated[
        AmbiguousTime,
        typer.Option(help="Result for a local time that occurs twice when clocks change: reject its row, or choose."),
    ] = AmbiguousTime.REJECT
    spread: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Spread due times evenly over this time, by message id.")
    ] = None
    ramp: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Let the rate grow from 0 in the first part of --spread.")
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS",
            help="Move due times outside of these hours to the next opening, as 08:00-20:00 or mon-fri 08:00-20:00; "
            "needs --time-zone or --zone-column.",
        ),
    ] = None
    max_rows_per_second: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Limit the rate at which the load writes its rows.")
    ] = None
    rejects_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder for rejected rows; other rows are loaded. Without it, one rejected row stops the load.",
        ),
    ] = None
    again: Annotated[bool, typer.Option("--again", help="Load a load id again that was cancelled.")] = False

    def rules(self) -> dict[str, str | None]:
        """The options of a load, but those about keys; None: not given, or the default."""
        given = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {
            _name_of(field): None if value == default else "true" if value is True else str(value)
            for field, (value, default) in given.items()
            if field not in _OF_KEYS
        }

    def given(
        self, where: EndpointOptions, destination: str | None, typed: Mapping[str, str] = NO_OTHERS
    ) -> dict[str, str]:
        """All options of a load that are given, with those of `where`.

        `typed`: options that the command has by another name. Raises ConfigurationError where a store or an endpoint is
        missing, and for an option that is empty, as one from a variable that a shell does not know.
        """
        longest = None if self.max_wait is None else parse_duration(self.max_wait, "--max-wait").total_seconds()
        options = {
            "store": where.require_store(),
            "endpoint": where.require_endpoint(),
            "schema": where.schema,
            "table": where.table,
            "destination": destination,
            "onKey": None if self.on_key is None else self.on_key.value,
            "maxWait": None if longest is None else str(longest),
            **self.rules(),
            "transport": where.transport,
        }
        for name, value in options.items():
            if value == "":
                raise ConfigurationError(f"{option_of(name, typed)} is empty; give it a value, or leave it out")
        return {name: value for name, value in options.items() if value is not None}


_OPTIONS: Final = ("destination", "schema", "table", "separator", *(_name_of(each.name) for each in fields(RowOptions)))
_NAME: Final = re.compile(rf"(?:{'|'.join(_OPTIONS)})\b")
_NAMED: Final = re.compile(rf"\bthe options? ({_NAME.pattern}(?: and {_NAME.pattern})*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Whether a load is only tried, and how that is shown."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Convert and check all rows; write nothing.")] = False
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show when the rows would be due; do not look for duplicates.")
    ] = False
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also draw when the rows would be due, as PNG; with --dry-run or --preview."),
    ] = None

    @property
    def writes_nothing(self) -> bool:
        """Whether the load is only tried. ConfigurationError for options that do not fit together."""
        if self.dry_run and self.preview:
            raise ConfigurationError("--preview is a part of --dry-run; leave one out")
        if self.plot is not None:
            if not (self.dry_run or self.preview):
                raise ConfigurationError("--plot draws a load that is only tried; add --dry-run or --preview")
            from delaystore.bulk.preview import check_plot

            check_plot(Path(self.plot))
        return self.dry_run or self.preview

    def report(self, report: "DryRun", *, as_json: bool) -> None:
        """Report the messages that would be loaded, and draw them. Raises typer.Exit where a dry run would fail."""
        report_dry_run(report, as_json=as_json)
        if self.plot is not None:
            from delaystore.bulk.preview import draw

            draw(report.preview, Path(self.plot))
        if self.dry_run and report.obstacles:
            raise typer.Exit(1)


RowsOfFile = Annotated[RowOptions, Offered(*(each.name for each in fields(RowOptions) if each.name not in _OF_ONE))]
"""The options of `send --file`, except the options of one message."""
Format = Annotated[str | None, format_option("load")]
Separator = Annotated[str | None, separator_option("load")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Master of Spark. Default: local[*].")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark, such as spark.driver.memory=4g; repeatable."),
]
SparkLog = Annotated[str | None, typer.Option(metavar="FILE", help="File for the log of Spark.")]
Cleanup = Annotated[bool, typer.Option("--cleanup", help="Only remove the remains of killed loads, and report them.")]


# From what was typed to a load's request.


def parse_kind(name: str | None) -> "Kind | None":
    """What --format says; None: nothing."""
    from delaystore.bulk.files import Kind

    try:
        return None if name is None else Kind(name.lower())
    except ValueError:
        raise ConfigurationError(f"--format must be one of {', '.join(Kind)}, not {name!r}") from None


def read_with(files: "DataFiles", separator: str | None, sheet: str | None = None) -> "DataFiles":
    """The files, to be read as --separator and --sheet say; None: as they are.

    ConfigurationError for one that is of another kind of file.
    """
    from delaystore.bulk.csv_files import separator_of
    from delaystore.bulk.files import Kind

    for option, given, kind in (("--separator", separator, Kind.CSV), ("--sheet", sheet, Kind.XLSX)):
        if given is not None and files.kind is not kind:
            raise ConfigurationError(f"{option} goes with {kind} files only; leave it out")
    return replace(files, separator=None if separator is None else separator_of(separator), sheet=sheet)


def report_form(files: "DataFiles") -> None:
    """Report how CSV files are written, unless with commas in UTF-8."""
    form = files.form
    if form is not None and not form.is_usual:
        print_note(f"note: CSV with the {form}")


def require_existing(store: "LoadStore", where: EndpointOptions, *, dry_run: bool) -> None:
    """UnknownEndpointError where the endpoint has no tables yet, or no SQLite file; of a dry run a remark."""
    from delaystore.cli._options import UnknownEndpointError, require_file, require_tables

    try:
        require_file(where.store or "", may_create=True)
        if where.transport is not None:
            where.open_transport(existing=True).close()
        require_tables(store.store, where.endpoint or "")
    except UnknownEndpointError as error:
        if not dry_run:
            raise
        print_note(f"note: {error}")


def parse_columns(pairs: Sequence[str]) -> Mapping[str, str]:
    """From texts such as `due_time=send_at` to the file's column of each message column."""
    from delaystore.bulk.columns import MESSAGE_COLUMNS

    columns: dict[str, str] = {}
    for pair in pairs:
        given, column = (part.strip() for part in parse_pair(pair, "--map", "NAME=COLUMN"))
        name = given.lower()
        if name not in MESSAGE_COLUMNS:
            raise ConfigurationError(f"--map {pair!r}: a message has no {given!r}; it has {', '.join(MESSAGE_COLUMNS)}")
        if name in columns:
            raise ConfigurationError(f"--map gives {name} twice")
        if not column:
            raise ConfigurationError(f"--map {pair!r} names no column")
        columns[name] = column
    return columns


_OBSTACLES: Final[Mapping[str, str]] = {
    "rejects": "rows cannot be messages (see --rejects-dir)",
    "twice": "a message_id comes twice (see --on-duplicate)",
    "waiting": "a message_id waits in the store already (see --on-duplicate)",
}
"""Why a load would fail, in words."""


def report_load(report: "LoadReport", *, as_json: bool, again: bool = False) -> None:
    """Report the loaded messages. Raises typer.Exit where an earlier run has loaded other files by that id.

    `again`: whether a cancelled load was to be loaded once more.
    """
    if as_json:
        print_document(
            {
                "load_id": report.load_id,
                "stored": report.stored,
                "skipped": report.skipped,
                "rejected": report.rejects.count,
                "rejections": _rejections(report.rejects),
                "seconds": round(report.seconds, 3),
                "finished_before": instant(report.finished_before),
                "differs": report.differs,
            }
        )
    else:
        _tell_load(report, again=again)
    if report.differs:
        raise typer.Exit(1)


def _tell_load(report: "LoadReport", *, again: bool) -> None:
    messages = "messages" if report.stored is None else counted(report.stored, "message")
    if report.finished_before is not None:
        at = time_text(report.finished_before)
        print_line(f"nothing to do: the load {report.load_id!r} was finished at {at}, with {messages}")
        if report.differs:
            rows = counted(report.rows or 0, "row")
            print_note(f"not loaded: the files have {rows} now; load other data under another --load-id")
        elif again:
            print_note("note: --again loads a cancelled load once more; this one was not cancelled")
        return
    if report.stored == 0 and not report.skipped and report.load_id is not None:
        print_note(f"warning: the load {report.load_id!r} had no messages, and counts as finished")
    rate = f", {report.stored / report.seconds:,.0f}/s" if report.stored is not None and report.seconds else ""
    print_line(f"{messages} loaded{f' in {report.seconds:.1f} s{rate}' if report.seconds else ''}")
    if report.skipped:
        print_line(f"{counted(report.skipped, 'duplicate')} skipped")
    _tell_rejects(report.rejects, "rejected")
    if report.guarantee is not None:
        print_note(f"note: {report.guarantee}")
    elif report.load_id is None:
        print_note("note: without --load-id a load that is run again is not recognised")


def report_dry_run(report: "DryRun", *, as_json: bool) -> None:
    """Report the messages that would be loaded."""
    obstacles = [_OBSTACLES[obstacle] for obstacle in report.obstacles]
    if as_json:
        duplicates = {
            "in_the_files": report.twice,
            "in_the_files_examples": list(report.twice_examples),
            "waiting": report.waiting,
            "waiting_examples": list(report.waiting_examples),
        }
        print_document(
            {
                "load_id": report.given.load_id,
                "would_store": report.would_store,
                "obstacles": obstacles,
                "duplicates": None if report.twice is None else duplicates,
                "rejected": report.rejects.count,
                "rejections": _rejections(report.rejects),
                "seconds": round(report.seconds, 3),
                "preview": report.preview.document(),
            }
        )
        return
    if report.twice is None:
        rows = counted(report.messages, "message")
        print_line(f"a preview: {rows}, without a search for duplicates; nothing was written")
        if obstacles:
            print_line(f"the load would fail, because {', and '.join(obstacles)}")
    elif obstacles:
        print_line(f"a dry run: the load would fail, because {', and '.join(obstacles)}; nothing was written")
    else:
        print_line(f"a dry run: {counted(report.would_store, 'message')} would be loaded; nothing was written")
    if report.given.if_delivered is not DeliveredRows.LOAD:
        print_note("note: a dry run does not search the history for messages that were delivered already")
    if report.waiting is None:
        print_note("note: this store cannot list waiting messages; rows that wait already would be left out")
    if report.twice:
        print_line(
            f"{counted(report.twice, 'row')} with a message_id that came before{_such_as(report.twice_examples)}"
        )
    if report.waiting:
        print_line(
            f"{counted(report.waiting, 'message_id')} waiting in the store already{_such_as(report.waiting_examples)}"
        )
    _tell_rejects(report.rejects, "would be rejected")
    _tell_preview(report.preview)


_MOST_BARS: Final = 60


def _tell_preview(preview: "LoadPreview") -> None:
    """When messages are due: a bar for each span, and a line for each limited destination."""
    if not preview.every.rows:
        return
    step, bars = preview.every.bars(_MOST_BARS)
    highest = max(each.rows + each.waiting for each in bars)
    times, of_load, of_store = "due", "rows", "waiting"
    table = [
        (f"{each.start:%Y-%m-%d %H:%M}Z", str(each.rows), str(each.waiting), bar([each.rows, each.waiting], highest))
        for each in bars
    ]
    print_table((times, of_load, of_store, ""), table, right=(of_load, of_store), unbroken=(times,))
    print_line(f"each line is {duration_text(step)}, in UTC")
    if preview.every.waiting is None:
        print_note("note: waiting messages are not counted; this store has no tables yet, or cannot count them")
    for each in preview.destinations:
        if each.max_rate is None:
            continue
        limited = f"{each.destination} is limited to {each.max_rate * 60:,.10g}/m"
        if (over := each.exceeded) is None:
            print_line(f"{limited}; no minute exceeds that")
        else:
            of = f"{counted(over.rows, 'row')} and {counted(over.waiting, 'waiting message')}"
            print_line(f"{limited}; the first minute that exceeds that is {over.start:%Y-%m-%d %H:%M}Z, with {of}")


def report_cleanup(cleaned: "Cleaned", *, as_json: bool) -> None:
    """Report the removed stagings."""
    if as_json:
        print_document({"loads": list(cleaned.loads), "tables": list(cleaned.tables), "held": list(cleaned.in_use)})
        return
    for load in cleaned.loads:
        print_line(f"forgotten: the load {load!r}, which was never finished")
    for table in cleaned.tables:
        print_line(f"dropped: the table {table}")
    for table in cleaned.in_use:
        print_note(f"left: the table {table}, which a process still works on; try again later")
    if not (cleaned.loads or cleaned.tables or cleaned.in_use):
        print_line("nothing to remove")


def _tell_rejects(rejects: "Rejects", what: str) -> None:
    if not rejects.count:
        return
    print_line(f"{counted(rejects.count, 'row')} {what}:")
    for text, reason in sorted(rejects.reasons.items(), key=lambda item: (-item[1].count, item[0])):
        print_line(f"  {reason.count:,} x {as_typed(text)}{_such_as(reason.examples[:1])}")


def _such_as(examples: Sequence[str]) -> str:
    return f" (such as {', '.join(examples)})" if examples else ""


def _rejections(rejects: "Rejects") -> list[dict[str, Any]]:
    return [
        {"reason": as_typed(text), "count": reason.count, "examples": list(reason.examples)}
        for text, reason in sorted(rejects.reasons.items())
    ]
