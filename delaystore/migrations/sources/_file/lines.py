"""A file's lines as messages, one at a time, by the file's URL."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlalchemy import URL

from delaystore.errors import ConfigurationError, InvalidMessageError, StorePermissionError, StoreUnavailableError
from delaystore.message import PROPERTY_TYPES, DelayedMessage
from delaystore.migrations.records.files import LongLineError, numbered_lines, parquet_contents
from delaystore.migrations.records.nservicebus import ADDRESSES
from delaystore.migrations.records.reader import CONSTANT, FIELDS, RecordMapping, RecordReader
from delaystore.migrations.records.times import Delays, DeliveredAtOnceError, delays_of, due_times
from delaystore.registry import needed_for
from delaystore.text import JsonError, parse_json

# What the URL of a file says: where it is, and which of its columns is what.

_BODIES: Final = frozenset({"body", "body_base64", "body_json"})
_DEFAULTS: Final = ("message_id", "destination", "due_time", "body", "body_base64", "headers", "properties")
"""The fields that are read from columns of the same names, unless the URL says otherwise."""
_INSTEAD: Final[Mapping[str, frozenset[str]]] = {
    "due_time": frozenset({"sent_time", "delay_ms"}),
    "body": _BODIES,
    "body_base64": _BODIES,
    "properties": frozenset(PROPERTY_TYPES),
}
"""For a field with a default: the fields that turn the default off if the URL maps one of them."""
_OTHERS: Final = ("due_unit", "timezone", "headers_of", "addresses", "delay_of")
_HEADERS_OF: Final = ("nservicebus",)
_FORMATS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_SUFFIX: Final = ".migration.sqlite"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The file, the format it is written in ("jsonl" or "parquet"), and which of its columns is which field."""

    path: Path
    format: str
    mapping: RecordMapping

    @property
    def state(self) -> Path:
        """The SQLite file of the file's migration, beside it."""
        return self.path.with_name(self.path.name + _SUFFIX)

    @property
    def state_url(self) -> URL:
        """The URL of that SQLite file."""
        return URL.create("sqlite", database=str(self.state))

    @property
    def by_endpoint(self) -> bool:
        """Whether lines name their endpoints. False: all lines belong to any requested endpoint."""
        return "endpoint" in self.mapping.columns


def file_options(url: str) -> FileOptions:
    """The options of `url`, file:///PATH?FIELD=COLUMN&...; ConfigurationError for options that cannot work."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise ConfigurationError("a file is named by its absolute path, as in file:///srv/dump.jsonl (three slashes)")
    path = Path(unquote(parts.path))
    given = _given(parts.query)
    nservicebus = _chosen(given, "headers_of", _HEADERS_OF) is not None
    addresses = _chosen(given, "addresses", ADDRESSES)
    if addresses is not None and not nservicebus:
        raise ConfigurationError("addresses is for messages of NServiceBus; add headers_of=nservicebus")
    times = due_times(given.pop("due_unit", None), given.pop("timezone", None))
    delays = _delays(given)
    if delays.name and nservicebus:
        raise ConfigurationError(
            "delay_of is for messages of the delayed-message plugin; leave headers_of=nservicebus out"
        )
    defaults = {name: name for name in _DEFAULTS if not _INSTEAD.get(name, frozenset()) & given.keys()}
    address = ADDRESSES[addresses or "queue"]
    return FileOptions(path, _format(path), RecordMapping({**defaults, **given}, times, nservicebus, address, delays))


def _delays(given: dict[str, str]) -> Delays:
    delays = delays_of(given.pop("delay_of", None))
    if delays.name and not {"sent_time", "delay_ms"} <= given.keys():
        raise ConfigurationError("delay_of needs the columns of both times; add sent_time=COLUMN and delay_ms=COLUMN")
    return delays


def _chosen(given: dict[str, str], name: str, known: Collection[str]) -> str | None:
    value = given.pop(name, None)
    if value is not None and value not in known:
        raise ConfigurationError(f"{name}={value!r} is unknown; known is {', '.join(known)}")
    return value


def _given(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise ConfigurationError("what follows the ? must be FIELD=COLUMN pairs, joined by &") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in FIELDS and name not in _OTHERS:
            raise ConfigurationError(f"unknown parameter {name!r}; known are {', '.join((*FIELDS, *_OTHERS))}")
        if name in given:
            raise ConfigurationError(f"the parameter {name} is given twice")
        if not value:
            raise ConfigurationError(f"the parameter {name} is empty; name a column, or a value after {CONSTANT}")
        given[name] = value
    return given


def _format(path: Path) -> str:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise ConfigurationError(
            f"{path.name!r} is of no known kind; its name must end with {', '.join(_FORMATS)} "
            "(jq -c '.[]' makes JSON lines of a JSON array)"
        )
    return found


# JSON lines: one object a line, in UTF-8.

MAX_LINE_BYTES: Final = 128 * 1024 * 1024
"""A longer line is refused: a file without line ends must not fill the memory."""
ParsedLine = dict[str, Any] | InvalidMessageError
"""A line's object; or why it cannot be read."""
_BOM: Final = b"\xef\xbb\xbf"


def read_json_lines(path: Path, _wanted: Collection[str] = ()) -> Iterator[tuple[int, ParsedLine]]:
    """The number of each line, from 1, and its record; blank lines are left out. OSError where it cannot be read."""
    for number, line in numbered_lines(path, MAX_LINE_BYTES):
        if isinstance(line, LongLineError):
            yield number, InvalidMessageError(f"it has more than {MAX_LINE_BYTES} bytes")
        elif text := line.removeprefix(_BOM if number == 1 else b"").strip():
            yield number, _record(text)


def _record(text: bytes) -> ParsedLine:
    try:
        record = parse_json(text)
    except JsonError as error:
        return InvalidMessageError(f"it {error}; a line must be one JSON object")
    return record if type(record) is dict else InvalidMessageError("it is JSON, but no object on one line")


# Parquet files, by pyarrow.

_ROWS: Final = 256
"""Rows in memory at a time, besides what pyarrow itself buffers."""


def read_parquet(path: Path, wanted: Collection[str]) -> Iterator[tuple[int, ParsedLine]]:
    """The number of each row, from 1, and its columns that are `wanted` (names, or names joined by dots).

    Maps become dicts, and times of nanoseconds are cut to microseconds, also nested ones. Raises
    MissingDependencyError without pyarrow, ConfigurationError for a file that is no Parquet, OSError where it cannot be
    read.
    """
    with needed_for("reading Parquet files"):
        pyarrow = import_module("pyarrow")
    number = 0
    try:
        with parquet_contents(path) as contents:
            file = contents.file
            for batch in file.iter_batches(batch_size=_ROWS, columns=_present(file, wanted)):
                for record in _records(_to_microseconds(pyarrow, batch, contents.old_instants)):
                    number += 1
                    yield number, record
    except pyarrow.ArrowException as error:
        raise ConfigurationError(f"{path.name!r} is no Parquet file that can be read: {_first_line(error)}") from None


def _present(file: Any, wanted: Collection[str]) -> list[str] | None:
    """The file's columns that are wanted, or that a wanted one is nested in. None: there are none, so all are read."""
    names = [name for name in file.schema_arrow.names if any(f"{want}.".startswith(f"{name}.") for want in wanted)]
    return names or None


def _records(rows: Any) -> Sequence[ParsedLine]:
    """All rows. A row with a value that Python cannot represent, such as a year beyond 9999, becomes an error."""
    try:
        records: list[ParsedLine] = rows.to_pylist(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        if len(rows) == 1:
            return [InvalidMessageError(f"it holds what cannot be read: {_first_line(error)}")]
        return [record for index in range(len(rows)) for record in _records(rows.slice(index, 1))]
    return records


def _to_microseconds(pyarrow: Any, batch: Any, instants: Collection[str]) -> Any:
    """`instants`: columns whose times are in UTC, though they do not say so."""
    utc = pyarrow.timestamp("us", "UTC")
    fields = [
        field.with_type(utc if field.name in instants else _in_microseconds(pyarrow, field.type))
        for field in batch.schema
    ]
    return batch.cast(pyarrow.schema(fields), safe=False)


def _in_microseconds(pyarrow: Any, kind: Any) -> Any:
    """The type with microseconds for nanoseconds, which Python's types do not have."""
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_in_microseconds(pyarrow, field.type)) for field in kind])
    if types.is_map(kind):
        return pyarrow.map_(_in_microseconds(pyarrow, kind.key_type), _in_microseconds(pyarrow, kind.item_type))
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_in_microseconds(pyarrow, kind.value_type)))
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pyarrow.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pyarrow.duration("us")
    return pyarrow.time64("us") if types.is_time64(kind) else kind


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


# A file's lines, as messages, one at a time.

_READERS: Final[Mapping[str, Callable[[Path, Collection[str]], Iterator[tuple[int, ParsedLine]]]]] = {
    "jsonl": read_json_lines,
    "parquet": read_parquet,
}


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line (JSON lines) or row (Parquet), by its number from 1.

    `endpoint`: None: the line names none. `message`: the error if the line is no message; a
    DeliveredAtOnceError if it is one that has arrived.
    """

    number: int
    endpoint: str | None
    message: DelayedMessage | InvalidMessageError | DeliveredAtOnceError


def read_lines(options: FileOptions) -> Iterator[NumberedLine]:
    """All lines. Raises as `readable` does, and MissingDependencyError."""
    reader = RecordReader(options.mapping)
    with readable(options.path):
        for number, record in _READERS[options.format](options.path, options.mapping.columns.values()):
            if isinstance(record, Mapping):
                yield _line(reader, number, record)
            else:
                yield NumberedLine(number, None, record)


def _line(reader: RecordReader, number: int, record: Mapping[str, object]) -> NumberedLine:
    endpoint = reader.endpoint(record)
    try:
        return NumberedLine(number, endpoint, reader.message(number, record))
    except (InvalidMessageError, DeliveredAtOnceError) as error:
        return NumberedLine(number, endpoint, error)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """ConfigurationError, StorePermissionError or StoreUnavailableError where the file cannot be read."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigurationError(f"there is no file {str(path)!r}; give its absolute path") from None
    except PermissionError:
        raise StorePermissionError(f"{str(path)!r} may not be read; allow it, or use another user") from None
    except OSError as error:
        reason = (str(error).splitlines() or ["unknown error"])[0]
        raise StoreUnavailableError(f"{str(path)!r} cannot be read to its end: {reason}") from None
