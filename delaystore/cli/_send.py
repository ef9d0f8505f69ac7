"""`delaystore send`: one message, or a file of them."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from delaystore.bulk.options import DeliveredRows
from delaystore.cli import _load_options as of_load
from delaystore.cli._changing import ActorName
from delaystore.cli._load_options import (
    option_of,
    options_as_typed,
    parse_columns,
    parse_kind,
    read_with,
    report_form,
    report_load,
    require_existing,
)
from delaystore.cli._options import (
    At,
    BodyFile,
    DelayOption,
    DispatchedEndpoint,
    EndpointOptions,
    HeaderOption,
    HeadersJson,
    JsonBody,
    JsonOption,
    create_option,
    environment_option,
    missing_file,
    parse_due,
    parse_headers,
    parse_pair,
    property_option,
    standard_input,
)
from delaystore.cli._output import print_document, print_line, print_note
from delaystore.cli._signals import StoppedAtOnceError, stop_requests
from delaystore.errors import ConfigurationError, DelaystoreError, MissingDependencyError, StoreError, TransportError
from delaystore.message import PROPERTY_TYPES, IfDelivered, OnKey
from delaystore.registry import installing
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores.records import Way
from delaystore.text import JsonError, parse_duration, parse_instant, parse_json
from delaystore.transports import Transport

if TYPE_CHECKING:
    from delaystore.bulk.files import DataFiles
    from delaystore.bulk.request import DryRun, LoadReport, LoadRequest
    from delaystore.bulk.staging import LoadStore
    from delaystore.calls import ProgressListener
    from delaystore.cli._options import OpenedEndpoint

_RuleT = TypeVar("_RuleT", DeliveredRows, IfDelivered)
_TYPED: Final = {"destination": "DESTINATION"}
_LOOKING: Final = 3.0
"""Seconds that it may take to find out whether there is a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How a file is read, as given on the command line."""

    mapping: Annotated[list[str] | None, of_load.map_option("send")] = None
    kind: Annotated[str | None, of_load.format_option("send", "csv, json, parquet or xlsx")] = None
    separator: Annotated[str | None, of_load.separator_option("send")] = None
    sheet: Annotated[str | None, typer.Option(metavar="NAME", help="Sheet of the workbook. Default: the first.")] = None


@options_as_typed(_TYPED)
def send(
    destination: Annotated[
        str | None,
        typer.Argument(
            metavar="DESTINATION",
            help="A queue, /queues/NAME or /exchanges/NAME/KEY.",
        ),
    ] = None,
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="Body, as UTF-8 text. Default: empty.")] = None,
    delay: DelayOption = None,
    at: At = None,
    not_after: Annotated[
        str | None,
        environment_option("--not-after", "Latest delivery, a time with offset.", metavar="TIME", group="send"),
    ] = None,
    max_late: Annotated[
        str | None,
        environment_option(
            "--max-late", "Latest delivery, counted from the due time.", metavar="DURATION", group="send"
        ),
    ] = None,
    header: HeaderOption = None,
    headers_json: HeadersJson = None,
    property_: Annotated[list[str] | None, property_option("send")] = None,
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="Message id. Default: a new id.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Deduplication key: one waiting message per key.")
    ] = None,
    on_key: of_load.OnKeys = None,
    max_wait: of_load.MaxWait = None,
    if_delivered: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="If delivered: send, reject; a file: load, skip, error.",
        ),
    ] = None,
    body_file: BodyFile = None,
    json_body: JsonBody = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="Use a native delay if it fits; needs ?delays=NAME."),
    ] = False,
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="CSV, JSON lines, Parquet, .xlsx; - is standard input."),
    ] = None,
    *,
    reading: ReadingOptions,
    rows: of_load.RowsOfFile,
    trial: of_load.TrialOptions,
    create: Annotated[bool, create_option("send")] = False,
    actor: ActorName = None,
    where: DispatchedEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Send a delayed message, or a file of messages.

    Pass --delay or --at, or --file for up to about 100,000 rows. Prints the message id (with --on-key keep, of
    the waiting message). With --transport it refuses messages that it cannot carry, and warns of missing queues.
    """
    if file is not None:
        one = {
            "BODY": body, "--body-file": body_file, "--json-body": json_body, "--delay": delay, "--at": at,
            "--not-after": not_after, "--max-late": max_late, "--header": header, "--headers-json": headers_json,
            "--property": property_, "--message-id": message_id, "--key": key, "--native": native,
        }  # fmt: skip
        if not file:
            raise ConfigurationError("--file is empty; name a file, or - for standard input")
        _refuse(one, "is of one message, and --file sends many, whose columns say that; leave it out")
        rows = replace(rows, on_key=on_key, max_wait=max_wait)
        if if_delivered is not None:
            rows = replace(rows, if_delivered=_if_delivered(if_delivered, DeliveredRows, "with --file"))
        options = rows.given(where, destination, _TYPED)
        send_file(file, options, where, reading, trial, create=create, by=actor, as_json=as_json)
        return
    of_file = {option_of(name): value for name, value in rows.rules().items()}
    read = {
        "--map": reading.mapping, "--format": reading.kind, "--separator": reading.separator, "--sheet": reading.sheet
    }  # fmt: skip
    tried = {"--dry-run": trial.dry_run, "--preview": trial.preview, "--plot": trial.plot}
    _refuse({**of_file, **read, **tried}, "goes with --file only")
    if destination is None:
        raise ConfigurationError("no destination is given; pass DESTINATION, or a file of messages with --file")
    after, instant = parse_due(delay, at)
    headers = headers_of(header, headers_json)
    properties = properties_of(property_, json_body)
    content = body_of(body, body_file, json_body)
    longest = _longest(key, on_key, max_wait)
    limit, late = _latest(not_after, max_late)
    repeats = IfDelivered.SEND if if_delivered is None else _if_delivered(if_delivered, IfDelivered, "without --file")
    with where.open(DelayedDeliverySettings(), native=native, existing=not create) as opened:
        sent = opened.delivery.sending_as(Way.CLI, actor).send(
            destination,
            content,
            delay=after,
            at=instant,
            headers=headers,
            properties=properties,
            message_id=message_id,
            key=key,
            on_key=on_key,
            max_wait=longest,
            not_after=limit,
            max_late=late,
            if_delivered=repeats,
        )
        if as_json:
            print_document({"message_id": sent})
        else:
            print_line(sent)
        warn_if_unreachable(opened, where, destination)


def warn_if_unreachable(opened: "OpenedEndpoint", where: EndpointOptions, destination: str) -> None:
    """Warn on standard error if the transport knows that nothing takes messages for `destination`."""
    if opened.transport is not None and not _may_reach(opened.transport, where.transport or "", destination):
        print_note(
            f"warning: nothing takes messages for {destination!r} at present; if this is still the case at the due "
            "time, the message goes to the error queue"
        )


def _may_reach(transport: Transport, url: str, destination: str) -> bool:
    """False: the transport knows that nothing takes messages for `destination`; an outage says nothing of it."""
    from delaystore.calls import Question
    from delaystore.cli._options import missing_file

    if missing_file(url) is not None:
        return False
    asked = Question("looking for the queue", lambda: transport.reaches(destination), _LOOKING)
    try:
        return asked.answer() is not False
    except (TransportError, StoreError):
        return True


def _if_delivered(name: str, rules: type[_RuleT], where: str) -> _RuleT:
    """The rule of --if-delivered; `where`: for the error, "with --file" or "without --file"."""
    try:
        return rules(name)
    except ValueError:
        raise ConfigurationError(f"{where}, --if-delivered must be one of {', '.join(rules)}, not {name!r}") from None


def _refuse(given: Mapping[str, object], why: str) -> None:
    """ConfigurationError naming the first option that was given, and why it cannot be."""
    for name, value in given.items():
        if value not in (None, False, []):
            raise ConfigurationError(f"{name} {why}")


def _longest(key: str | None, on_key: OnKey | None, max_wait: str | None) -> timedelta | None:
    """What --max-wait says; ConfigurationError where it, or --on-key, makes no sense."""
    if key is None and (on_key is not None or max_wait is not None):
        raise ConfigurationError("--on-key and --max-wait need --key; give the message a key, or leave them out")
    if max_wait is None:
        return None
    if on_key is not OnKey.DEBOUNCE:
        raise ConfigurationError("--max-wait needs --on-key debounce; leave it out")
    longest = parse_duration(max_wait, "--max-wait")
    if not longest:
        raise ConfigurationError(f"--max-wait {max_wait!r} must be more than 0")
    return longest


def _latest(not_after: str | None, max_late: str | None) -> tuple[datetime | None, timedelta | None]:
    """What --not-after and --max-late say, None for the one that is not given; ConfigurationError if both are."""
    if not_after is not None and max_late is not None:
        raise ConfigurationError("--not-after and --max-late are both given; pass one of them")
    late = None if max_late is None else parse_duration(max_late, "--max-late")
    if late is not None and not late:
        raise ConfigurationError(f"--max-late {max_late!r} must be more than 0")
    return None if not_after is None else parse_instant(not_after, "--not-after"), late


def headers_of(pairs: list[str] | None, json: str | None) -> dict[str, Any]:
    """The headers that --header and --headers-json say; raises ConfigurationError."""
    return {
        **parse_headers("{}" if json is None else json, "--headers-json"),
        **dict(parse_pair(text, "--header") for text in pairs or ()),
    }


def properties_of(pairs: list[str] | None, json_body: str | None) -> dict[str, Any]:
    """The properties that --property says, and the content type of --json-body; raises ConfigurationError."""
    properties = dict(_property(text) for text in pairs or ())
    if json_body is not None:
        properties.setdefault("content_type", "application/json")
    return properties


def body_of(text: str | None, file: str | None, json: str | None) -> bytes:
    """The body that BODY, --body-file or --json-body says; raises ConfigurationError."""
    if sum(given is not None for given in (text, file, json)) > 1:
        raise ConfigurationError("the body is given twice; pass one of BODY, --body-file and --json-body")
    if json is not None:
        try:
            parse_json(json)
        except JsonError as error:
            raise ConfigurationError(f"--json-body {error}") from None
        return json.encode()
    if file is None:
        return (text or "").encode(errors="surrogateescape")  # bytes that are no UTF-8 arrive as they were typed
    if not file:
        raise ConfigurationError("--body-file is empty; name a file, or - for standard input")
    try:
        return standard_input().read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"--body-file {file!r} cannot be read: {error.strerror}") from None


def _property(text: str) -> tuple[str, Any]:
    name, value = parse_pair(text, "--property")
    expected = PROPERTY_TYPES.get(name)
    if expected is datetime:
        return name, parse_instant(value, f"--property {name}").astimezone(UTC)
    if expected is not int:
        return name, value
    try:
        return name, int(value)
    except ValueError:
        raise ConfigurationError(f"--property {name} must be a whole number, not {value!r}") from None


MOST: Final = 1_000_000
_WATCHED: Final = 10_000
"""Rows from which on progress is shown."""
_STDIN: Final = "-"


def send_file(
    file: str,
    options: Mapping[str, str],
    where: EndpointOptions,
    reading: ReadingOptions,
    trial: of_load.TrialOptions,
    *,
    create: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Store the messages of a file (`-`: standard input), all of them or none; or report the messages that would be
    stored.

    `options`: those of a load, by their names. `where`: the endpoint, which must exist unless `create`. `trial`:
    whether they are only tried. `by`: the name under which the audit trail notes the replaced messages; None: the
    user's own.
    """
    _check_arrow()
    dry_run = trial.writes_nothing
    from delaystore.bulk.files import check_files
    from delaystore.bulk.options import replacing
    from delaystore.bulk.rejects import check_reject_folder
    from delaystore.bulk.request import DryRun, LoadRequest, finished_before
    from delaystore.bulk.staging import open_load_store

    with _found(file, reading.kind) as given:
        found = read_with(given, reading.separator, reading.sheet)
        request = LoadRequest(found, options, parse_columns(reading.mapping or ()))
        request.given = replace(request.given, noted_as=replacing(Way.CLI, by))
        with closing(open_load_store(request.given)) as store:
            if not create:
                require_existing(store, where, dry_run=dry_run)
            stored = missing_file(request.given.store) is None
            before = finished_before(request, store) if stored or not dry_run else None
            if before is not None:
                report_load(before, as_json=as_json, again=request.given.again)
                return
            check_reject_folder(request.given)
            request.files = check_files(found)
            report_form(request.files)
            report = _stored(request, store, _count(request, file), trial if dry_run else None, stored=stored)
    if isinstance(report, DryRun):
        trial.report(report, as_json=as_json)
    else:
        report_load(report, as_json=as_json)


def _stored(
    request: "LoadRequest", store: "LoadStore", total: int | None, trial: of_load.TrialOptions | None, *, stored: bool
) -> "LoadReport | DryRun":
    """`trial`: None: the messages are stored."""
    from delaystore.bulk.request import DirectLoad, finished_meanwhile, left_by_failure

    with _progress(total) as show, stop_requests() as stop:

        def watch(done: int) -> bool:
            show("stopping" if stop.made else "finishing" if done == total else "sending", done, total)
            return stop.made

        load = DirectLoad(request, store, watch)
        try:
            with stop.interrupting():
                if trial is None:
                    return load.run()
                return load.dry_run(stored=stored, duplicates=not trial.preview)
        except (DelaystoreError, StoppedAtOnceError):
            if not stop.made:
                raise
            meanwhile = None if trial else finished_meanwhile(request, store)
            if meanwhile is not None:
                print_note("too late to stop: the messages were stored meanwhile")
                return meanwhile
            print_note(f"stopped; {'a dry run writes nothing' if trial else left_by_failure(request, store)}")
            raise typer.Exit(stop.exit_code) from None


@contextmanager
def _progress(total: int | None) -> Iterator["ProgressListener"]:
    """A bar, unless so few rows are stored before it could be drawn."""
    from delaystore.calls import unwatched

    if total is not None and total < _WATCHED:
        yield unwatched
        return
    from delaystore.cli._progress import ProgressBar

    with ProgressBar(transient=True) as bar:
        yield bar.show


@contextmanager
def _found(file: str, kind: str | None) -> Iterator["DataFiles"]:
    """The file; standard input is kept in one for the block, because it is read more than once."""
    from delaystore.bulk.files import find_file

    read_as = parse_kind(kind)
    if file != _STDIN:
        yield find_file(file, read_as)
        return
    if read_as is None:
        raise ConfigurationError(
            "standard input does not say how it is written; add --format csv, json, parquet or xlsx"
        )
    with TemporaryDirectory(prefix="delaystore-") as folder:
        path = Path(folder, "standard-input")
        try:
            with path.open("wb") as copy:
                shutil.copyfileobj(standard_input(), copy)
        except OSError as error:
            raise ConfigurationError(f"standard input cannot be copied to {folder}: {error.strerror}") from None
        yield find_file(str(path), read_as)


def _count(request: "LoadRequest", file: str) -> int | None:
    """The number of rows, with a word on the command that suits it; ConfigurationError for too many."""
    from delaystore.bulk.files import count_rows
    from delaystore.bulk.request import FEW_ROWS

    rows = count_rows(request.files)
    if rows is not None and rows > MOST:
        raise ConfigurationError(
            f"{file!r} has {rows:,} rows, and --file takes up to {MOST:,}; use `delaystore load`, with the same options"
        )
    if rows is not None and rows > FEW_ROWS:
        print_note(f"note: {rows:,} rows; `delaystore load`, with the same options, suits more than {FEW_ROWS:,}")
    return rows


def _check_arrow() -> None:
    try:
        import pyarrow  # noqa: F401 - what reads the rows
    except ModuleNotFoundError:
        raise MissingDependencyError(f"pyarrow is not installed, which --file needs; {installing('parquet')}") from None
