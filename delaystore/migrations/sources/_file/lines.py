"""A file's lines, as messages, one at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delaystore.errors import ConfigurationError, InvalidMessageError, StorePermissionError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.migrations.sources._file.json_lines import Record, read_json_lines
from delaystore.migrations.sources._file.options import FileOptions
from delaystore.migrations.sources._file.parquet import read_parquet
from delaystore.records.delays import DeliveredAtOnceError
from delaystore.records.reader import RecordReader

_READERS: Final[Mapping[str, Callable[[Path, Collection[str]], Iterator[tuple[int, Record]]]]] = {
    "jsonl": read_json_lines,
    "parquet": read_parquet,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line (JSON lines) or row (Parquet), by its number from 1.

    `endpoint`: None: the line names none. `message`: the error if the line is no message; a
    DeliveredAtOnceError if it is one that has arrived.
    """

    number: int
    endpoint: str | None
    message: DelayedMessage | InvalidMessageError | DeliveredAtOnceError


def read_lines(options: FileOptions) -> Iterator[Line]:
    """All lines. Raises as `readable` does, and MissingDependencyError."""
    reader = RecordReader(options.mapping)
    with readable(options.path):
        for number, record in _READERS[options.format](options.path, options.mapping.columns.values()):
            if isinstance(record, Mapping):
                yield _line(reader, number, record)
            else:
                yield Line(number, None, record)


def _line(reader: RecordReader, number: int, record: Mapping[str, object]) -> Line:
    endpoint = reader.endpoint(record)
    try:
        return Line(number, endpoint, reader.message(number, record))
    except (InvalidMessageError, DeliveredAtOnceError) as error:
        return Line(number, endpoint, error)


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
