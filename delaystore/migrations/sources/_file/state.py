"""The SQLite file beside an input file: its lines as rows, and the state of its migration.

One transaction reads the whole file: its rows are all there, or none is. From then on the rows are migrated, and the
file is only checked to be still the same.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b, file_digest
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    select,
    true,
)

from delaystore.errors import InvalidMessageError, MigrationError
from delaystore.message import DelayedMessage
from delaystore.migrations.records.reader import RecordMapping
from delaystore.migrations.records.times import DeliveredAtOnceError
from delaystore.migrations.sources._file.lines import FileOptions, NumberedLine, read_lines, readable
from delaystore.stores.sql.codec import KEY, SENT
from delaystore.stores.sql.engine import create_store_engine
from delaystore.stores.sql.errors import translated_errors
from delaystore.stores.sql.rows import to_row

_METADATA: Final = MetaData()
MESSAGES: Final = Table(
    "messages",
    _METADATA,
    Column("line", Integer, primary_key=True, autoincrement=False),
    Column("endpoint", Text),
    *(
        Column(name, kind, unique=name == KEY, index=name == "due_time", nullable=name != "due_time")
        for name, kind, *_ in SENT
    ),
    Column("error", Text),
)
"""A line that is no message has an `error`, and a due time by which it is moved, so that it is rejected."""
INPUT: Final = Table(
    "input",
    _METADATA,
    Column("size", BigInteger, nullable=False),
    Column("modified", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("reading", Text, nullable=False),
    Column("lines", Integer, nullable=False),
)
"""One row, written with the messages: the file that was read, and the options."""
DELIVERED: Final = Table(
    "delivered",
    _METADATA,
    Column("line", Integer, primary_key=True, autoincrement=False),
    Column("endpoint", Text),
    Column("reason", Text, nullable=False),
)
"""The lines whose messages were delivered at once, and do not move. Files of earlier releases have no such table."""
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class Input:
    """The loaded file. `reading`: see `reading_of`. `modified`: when the file was changed, nanoseconds after 1970."""

    size: int
    modified: int
    digest: str
    reading: str
    lines: int


class State:
    """The SQLite file of one input file. Raises StoreErrors where it cannot be used."""

    def __init__(self, options: FileOptions) -> None:
        self._options = options

    def create(self) -> None:
        """Make the tables, empty, where they are missing."""
        if not self._options.state.exists():
            self._create_file()
        with self._writing() as connection:
            _METADATA.create_all(connection)

    def loaded(self) -> Input | None:
        """The loaded file; None: nothing yet. Creates nothing."""
        if not self._options.state.exists():
            return None
        with self._connection() as connection:
            if not inspect(connection).has_table(INPUT.name):
                return None
            row = connection.execute(select(INPUT)).first()
            return None if row is None else Input(*row)

    def delivered(self, endpoint: str) -> Mapping[str, int]:
        """How many of the endpoint's loaded lines were delivered at once, by the reason."""
        if not self._options.state.exists():
            return {}
        with self._connection() as connection:
            if not inspect(connection).has_table(DELIVERED.name):
                return {}
            statement = select(DELIVERED.c.reason, func.count().label("lines")).group_by(DELIVERED.c.reason)
            statement = statement.where(self._is_of(DELIVERED, endpoint))
            return {row.reason: row.lines for row in connection.execute(statement)}

    def earlier(self, endpoint: str, due_before: datetime) -> int:
        """How many of the endpoint's messages that have not moved are due before `due_before`."""
        with self._connection() as connection:
            statement = select(func.count()).where(MESSAGES.c.due_time < due_before, MESSAGES.c.error.is_(None))
            return connection.execute(statement.where(self._is_of(MESSAGES, endpoint))).scalar_one()

    def _is_of(self, table: Table, endpoint: str) -> ColumnElement[bool]:
        return table.c.endpoint == endpoint if self._options.by_endpoint else true()

    def load(self, endpoint: str, at: datetime) -> Input:
        """Read the whole file, unless it is loaded. A line that cannot be read becomes a row to reject, due `at`."""
        if (loaded := self.loaded()) is not None:
            return loaded
        path = self._options.path
        with readable(path):
            before, digest = path.stat(), digest_of(path)
        with self._writing() as connection:
            lines = iter(read_lines(self._options))
            count = 0
            while chunk := list(islice(lines, _CHUNK)):
                _insert(connection, chunk, endpoint, at)
                count += len(chunk)
            if (found := path.stat()).st_size != before.st_size or found.st_mtime_ns != before.st_mtime_ns:
                raise MigrationError(f"{path.name!r} changed while it was read; migrate one that no program writes to")
            loaded = Input(before.st_size, before.st_mtime_ns, digest, reading_of(self._options.mapping), count)
            connection.execute(INPUT.insert(), asdict(loaded))
        return loaded

    def _create_file(self) -> None:
        """Create the file so that only users who may read the input may read it."""
        with readable(self._options.path):
            mode = self._options.path.stat().st_mode & 0o666
        with suppress(OSError):  # SQLite will say what is wrong
            os.close(os.open(self._options.state, os.O_CREAT | os.O_RDWR, mode | 0o200))

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        engine = create_store_engine(self._options.state_url)
        try:
            with translated_errors(), engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._connection() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()


def digest_of(path: Path) -> str:
    """A digest of the whole file."""
    with path.open("rb") as stream:
        return file_digest(stream, lambda: blake2b(digest_size=16)).hexdigest()


def reading_of(mapping: RecordMapping) -> str:
    """How the file is read, as text; compared so that it is never read in two ways."""
    columns = [f"{field}={column}" for field, column in sorted(mapping.columns.items())]
    times, address = mapping.due_times, mapping.address.__name__
    zone = times.zone.key if times.zone else None
    delays = [f"delay_of={mapping.delays.name}"] if mapping.delays.name else []  # as earlier releases wrote it
    return "&".join(
        [*columns, f"due_unit={times.unit}", f"timezone={zone}", f"nservicebus={mapping.nservicebus}", address, *delays]
    )


def _insert(connection: Connection, lines: Sequence[NumberedLine], endpoint: str, at: datetime) -> None:
    delivered, rows = [], []
    for line in lines:
        if isinstance(line.message, DeliveredAtOnceError):
            delivered.append({"line": line.number, "endpoint": line.endpoint, "reason": str(line.message)})
        else:
            rows.append(_row(line.number, line.endpoint, line.message, endpoint, at))
    if rows:
        connection.execute(MESSAGES.insert(), _without_duplicates(connection, rows, at))
    if delivered:
        connection.execute(DELIVERED.insert(), delivered)


def _row(
    number: int, named: str | None, message: DelayedMessage | InvalidMessageError, endpoint: str, at: datetime
) -> dict[str, Any]:
    if isinstance(message, InvalidMessageError):
        return _bad_row(number, named or endpoint, str(message), at)
    values = to_row(message)
    sent = {column.name: values[column.name] for column in SENT}
    return {"line": number, "endpoint": named, **sent, "error": None}


def _bad_row(number: int, endpoint: str | None, reason: str, at: datetime) -> dict[str, Any]:
    empty = dict.fromkeys(column.name for column in MESSAGES.columns)
    return {**empty, "line": number, "endpoint": endpoint, "due_time": at, "error": reason}


def _without_duplicates(connection: Connection, rows: Sequence[dict[str, Any]], at: datetime) -> list[dict[str, Any]]:
    """Reject a line with the id of an earlier one: receivers would take both for the same message."""
    known = _known_lines(connection, [row["message_id"] for row in rows])
    kept = []
    for row in rows:
        first = known.setdefault(row["message_id"], row["line"])
        if row["message_id"] is not None and first != row["line"]:
            reason = f"its message_id {row['message_id']!r} is that of line {first}"
            kept.append(_bad_row(row["line"], row["endpoint"], reason, at))
        else:
            kept.append(row)
    return kept


def _known_lines(connection: Connection, ids: Sequence[str | None]) -> dict[str | None, int]:
    statement = select(MESSAGES.c.message_id, MESSAGES.c.line).where(MESSAGES.c.message_id.in_(ids))
    return {row.message_id: row.line for row in connection.execute(statement)}
