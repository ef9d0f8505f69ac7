"""`delaystore export`: waiting messages, to a file or standard output, as `send --file` and `load` read it back."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delaystore.cli._changing import preview
from delaystore.cli._options import (
    DryRunOption,
    FilterOptions,
    JsonOption,
    StoredEndpoint,
    environment_option,
    parse_position,
)
from delaystore.cli._output import is_terminal, print_document, print_line, print_note, write_bytes
from delaystore.cli._signals import StoppedError, stop_requests
from delaystore.errors import ConfigurationError, StoreError, StoreSetupError
from delaystore.message import DelayedMessage, Position
from delaystore.text import counted

if TYPE_CHECKING:
    from delaystore.operations import Export
    from delaystore.operations.exports import Exported, ExportFile, ExportFormat

_STDOUT: Final = "-"


class MessageFormat(StrEnum):
    """How messages are written, as in `ExportFormat`."""

    JSONL = "jsonl"
    CSV = "csv"


_ENDINGS: Final = {
    "": MessageFormat.JSONL,
    ".json": MessageFormat.JSONL,
    ".jsonl": MessageFormat.JSONL,
    ".ndjson": MessageFormat.JSONL,
    ".csv": MessageFormat.CSV,
}


def _format_of(file: str) -> MessageFormat:
    """The format by the ending of a file's name; ConfigurationError for an ending of another format."""
    ending = Path(file).suffix.lower()
    if ending not in _ENDINGS:
        raise ConfigurationError(
            f"the ending {ending!r} of {file!r} names no format that export writes; use .jsonl or .csv, or pass "
            "--format"
        )
    return _ENDINGS[ending]


def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="New file; - is standard output.")] = _STDOUT,
    *,
    which: FilterOptions,
    form: Annotated[
        MessageFormat | None,
        environment_option(
            "--format", "JSON lines or CSV. Default: by the ending of FILE, or JSON lines.", group="export"
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Go on behind this cursor, which an interrupted export printed."),
    ] = None,
    continue_: Annotated[
        bool, environment_option("--continue", "Go on with an interrupted export to FILE.", group="export")
    ] = False,
    dry_run: DryRunOption = False,
    where: StoredEndpoint,
    as_json: JsonOption = False,
) -> None:
    """Write waiting messages to a file.

    `delaystore send --file` and `delaystore load` read the file. Export removes no message. It writes FILE.part, and
    renames it to FILE when it is complete. The file is no snapshot: messages that are rescheduled or resumed during the
    export may appear twice or not at all.
    """
    wanted = which.filter()
    begin = parse_position(after, "--after")
    if continue_ and (file == _STDOUT or begin is not None):
        raise ConfigurationError("--continue reads its position from FILE; leave --after or --continue out")
    if file.endswith("/"):  # which a path forgets
        raise ConfigurationError(f"{file!r} is a folder; name a file")
    if as_json and file == _STDOUT and not dry_run:
        raise ConfigurationError("--json reports on standard output, where the messages go; name a FILE")
    name = where.require_endpoint()
    from delaystore.operations.exports import ExportFile, ExportFormat

    chosen = ExportFormat(form or _format_of(file))
    with ExitStack() as stack:
        opened = stack.enter_context(where.open())
        operations = opened.delivery.operations
        if dry_run:
            preview(operations, wanted, as_json=as_json)
            return
        if file == _STDOUT:
            printed = _Printed(chosen, headed=begin is None)
            _run(operations.chunks(wanted, after=begin), printed, None, quiet=is_terminal())
            return
        sink = stack.enter_context(ExportFile(Path(file), chosen, name, wanted, resume=continue_))
        if not sink.is_complete:
            total = None if wanted else opened.delivery.estimate_count().messages
            _run(operations.chunks(wanted, after=sink.after or begin), sink, total)
        sink.finish()
    if as_json:
        print_document({"file": file, "format": chosen.value, **asdict(sink.exported)})
    else:
        print_line(f"exported: {counted(sink.exported.messages, 'message')} to {file}")
        _say_what_matters(file, chosen, sink.exported)


class _Printed:
    """Standard output. `headed`: it begins with the heading of files of that format."""

    def __init__(self, form: "ExportFormat", *, headed: bool) -> None:
        from delaystore.operations.exports import Exported

        self._form = form
        self.exported = Exported()
        self.after: Position | None = None
        if headed and form.head:
            write_bytes(form.head)

    def write(self, chunk: Sequence[DelayedMessage], after: Position | None, /) -> None:
        from delaystore.operations.exports import readable_of

        write_bytes(b"".join(map(self._form.line, readable_of(chunk))))
        self.exported = self.exported.with_chunk(chunk)
        self.after = after

    @property
    def resumption(self) -> str:
        return f"go on with --after {shlex.quote(str(self.after))}" if self.after else "begin again"


def _run(chunks: "Export", sink: "ExportFile | _Printed", total: int | None, *, quiet: bool = False) -> None:
    """Write all chunks. After a signal, or where the store fails, say how to go on; raises typer.Exit or StoreError."""
    from delaystore.cli._progress import ProgressBar

    with ExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        bar = None if quiet else stack.enter_context(ProgressBar(transient=True))
        try:
            while (chunk := chunks.next()) is not None:
                sink.write(chunk, chunks.after)
                if bar is not None:
                    bar.show("exporting", sink.exported.messages, total)
                if stop.made and chunks.after is not None:
                    raise StoppedError
        except StoreSetupError:
            raise
        except (StoppedError, StoreError) as error:
            if bar is not None:
                bar.end()
            print_note(f"interrupted: {counted(sink.exported.messages, 'message')} exported so far; {sink.resumption}")
            if isinstance(error, StoreError):
                raise
            raise typer.Exit(stop.exit_code) from None


def _say_what_matters(file: str, form: "ExportFormat", exported: "Exported") -> None:
    if exported.unreadable:
        print_note(f"warning: {counted(exported.unreadable, 'row')} hold no message, and are left out")
    if exported.keyed or form.value == MessageFormat.CSV:
        print_note(f"read it back with `delaystore send --file {shlex.quote(file)} --key-column key`")
