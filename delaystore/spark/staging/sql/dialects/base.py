"""What a dialect must say, and what most of them say alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import pyarrow as pa
from sqlalchemy import Connection, Insert, Select, Table, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from delaystore.spark.options import OnDuplicate

NAMED: Final = 10
"""Message_ids that an error names at most."""


class StagingDialect(ABC):
    """One database's way of taking in rows, and of moving them where messages wait."""

    patience: ClassVar[Mapping[str, str]] = {}
    """Of a URL's query: lets the driver wait for a statement that takes long."""
    prefixes: ClassVar[Sequence[str]] = ()
    """Words between CREATE and TABLE."""
    replaces_twice: ClassVar[bool] = True
    """Whether a replacing insert silently takes the last of several rows with one message_id."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that will write, perhaps through the driver's own cursor."""
        connection.begin()

    def take_time(self, connection: Connection) -> None:  # noqa: B027 - most set no limit
        """Let the statements of the transaction take as long as they need."""

    def create(self, connection: Connection, staging: Table) -> None:
        """Create the staging, tuned for being filled once and read once."""
        staging.create(connection)

    @abstractmethod
    def drop(self, connection: Connection, name: str) -> None:
        """Drop a table, by its quoted name, if it is there.

        If another connection uses the table for long: an error that `is_held` knows.
        """

    @abstractmethod
    def empty(self, connection: Connection, name: str) -> None:
        """Remove all rows; otherwise as `drop`."""

    @abstractmethod
    def is_held(self, error: DBAPIError) -> bool:
        """Whether `error` says that another connection uses the table."""

    @abstractmethod
    def copy(self, connection: Connection, staging: Table, attempt: int, rows: pa.RecordBatch) -> None:
        """Insert rows of the schema STAGED, in their order, in the connection's transaction."""

    @abstractmethod
    def promoting(self, live: Table, names: Sequence[str], staged: Select[Any], on_duplicate: OnDuplicate) -> Insert:
        """The insert of `staged`, whose columns are `names`, into the table in which messages wait."""

    @abstractmethod
    def is_duplicate(self, error: DBAPIError) -> bool:
        """Whether `error`, of a promotion, says that a message_id is there twice."""

    def is_conflict(self, error: DBAPIError) -> bool:  # noqa: ARG002 - for overriders
        """Whether `error` says that another transaction was in the way, so that the same may succeed now.

        False where a transaction that has begun to write meets no other.
        """
        return False

    def is_claimed(
        self,
        connection: Connection,  # noqa: ARG002 - for overriders
        live: Table,  # noqa: ARG002
        staged: Select[Any],  # noqa: ARG002
        now: datetime,  # noqa: ARG002
    ) -> bool:
        """Whether a dispatcher has claimed a message that `staged` would replace; False where locks tell."""
        return False


def twice(staged: Select[Any]) -> Select[Any]:
    """Some message_ids that are twice in `staged`."""
    rows = staged.subquery("staged")
    grouped = select(rows.c.message_id).group_by(rows.c.message_id).having(func.count() > 1)
    return grouped.order_by(rows.c.message_id).limit(NAMED)


def waiting_already(staged: Select[Any], live: Table) -> Select[Any]:
    """Some message_ids of `staged` that wait already."""
    rows = staged.subquery("staged")
    joined = select(rows.c.message_id).join(live, live.c.message_id == rows.c.message_id)
    return joined.order_by(rows.c.message_id).limit(NAMED)


def plain_insert(live: Table, names: Sequence[str], staged: Select[Any]) -> Insert:
    """Fails where a message_id is there already."""
    return insert(live).from_select(list(names), staged, include_defaults=False)


def run(connection: Connection, statement: str) -> None:
    """Execute SQL as it stands, whatever signs its names hold."""
    connection.execute(text(statement.replace("\\", "\\\\").replace(":", r"\:")))


def python_rows(rows: pa.RecordBatch, attempt: int, times: pa.Array) -> Iterator[tuple[Any, ...]]:
    """`rows` for a driver: attempt, message_id, destination, due_time, next_attempt, 0, headers, properties, body."""
    columns = {name: rows.column(name).to_pylist() for name in rows.schema.names if name != "due_time"}
    due = times.to_pylist()
    fixed = [attempt] * len(due), [0] * len(due)
    return zip(
        fixed[0],
        columns["message_id"],
        columns["destination"],
        due,
        due,
        fixed[1],
        columns["headers"],
        columns["properties"],
        columns["body"],
        strict=True,
    )
