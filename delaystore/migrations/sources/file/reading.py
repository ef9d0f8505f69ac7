"""A file's lines, as messages, one at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delaystore.errors import ConfigurationError, InvalidMessageError, StorePermissionError, StoreUnavailableError
from delaystore.message import DelayedMessage
from delaystore.migrations.sources.file.json_lines import Record, read_json_lines
from delaystore.migrations.sources.file.options import FileOptions
from delaystore.migrations.sources.file.parquet import read_parquet
from delaystore.migrations.sources.file.records import Records

_READERS: Final[Mapping[str, Callable[[Path, Collection[str]], Iterator[tuple[int, Record]]]]] = {
    "jsonl": read_json_lines,
    "parquet": read_parquet,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line (JSON lines) or row (Parquet), by its number from 1: its endpoint, if it names one, and its message.

    Or why it cannot be one.
    """

    number: int
    endpoint: str | None
    message: DelayedMessage | InvalidMessageError


def read_lines(options: FileOptions) -> Iterator[Line]:
    """All lines. Raises as `readable` does, and MissingDependencyError."""
    records = Records(options)
    with readable(options.path):
        for number, record in _READERS[options.format](options.path, options.columns.values()):
            if isinstance(record, Mapping):
                yield _line(records, number, record)
            else:
                yield Line(number, None, record)


def _line(records: Records, number: int, record: Mapping[str, object]) -> Line:
    endpoint = records.endpoint(record)
    try:
        return Line(number, endpoint, records.message(number, record))
    except InvalidMessageError as error:
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
