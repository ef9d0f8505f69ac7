"""What a kind of table means: where its messages are, which column says what, and how a row becomes a message."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Inspector, Table
from sqlalchemy.types import TypeEngine

from delaystore.errors import InvalidMessageError
from delaystore.message import DelayedMessage
from delaystore.migrations._checksum import Identity


class RecurringError(InvalidMessageError):
    """A row is no message because it is due again and again: the program of its table goes on with it."""


class TableShape(ABC):
    """One kind of table. Its objects hold no connection and no state.

    Columns are named as the database spells them; `SqlSource` quotes them, and reflects their types. Instants of the
    `time_column` and `order_column` come as aware datetimes in UTC, also from columns without a time zone, which are
    read as UTC. Other values come as the driver gives them: a uuid is a UUID, text may be None.
    """

    kind: ClassVar[str]
    """What people call it: "delaystore"."""
    columns: ClassVar[Mapping[str, str]]
    """The columns that must exist, and what each is for."""
    missing_column_advice: ClassVar[str] = ""
    """A sentence to add, after a space, to the report that one of `columns` is missing."""
    id_column: ClassVar[str]
    """The primary key (or a unique column; MySQL and MariaDB: the primary key)."""
    time_column: ClassVar[str]
    """When a message is due; rows without a time, or with one that Python cannot represent, stay."""
    destination_column: ClassVar[str]
    order_column: ClassVar[str | None] = None
    """An indexed time, never before `time_column`, by which rows are found; None: `time_column` is indexed itself."""
    identity_columns: ClassVar[Sequence[str] | None] = None
    """The columns that `identity` reads; None: all."""

    leaves_rejected: ClassVar[bool] = False
    """Whether rows that cannot move stay in the table, because another program may still run them.

    False where a dispatcher of delaystore would reject them, too.
    """
    has_recurring: ClassVar[bool] = False
    """Whether `to_message` may raise RecurringError."""

    @abstractmethod
    def tables(self, inspector: Inspector, schema: str | None) -> Mapping[str, str]:
        """The endpoints that have messages here, and the table of each; `inspector.bind` is a connection."""

    @abstractmethod
    def table_name(self, endpoint: str) -> str:
        """The table of `endpoint`, whether it exists or not."""

    @abstractmethod
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """The message of a row (column name -> value); raises InvalidMessageError saying what is wrong with it."""

    def row_id(self, row: Mapping[str, Any]) -> str:
        """How people find the row; reads the `id_column` alone."""
        return str(row[self.id_column])

    def destination(self, value: Any) -> str:
        """The destination that `to_message` makes of a value of the `destination_column`."""
        return str(value)

    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        """(message_id, destination, due_time) as in `to_message`."""
        message = self.to_message(row, endpoint)
        return message.message_id, message.destination, message.due_time

    def of_endpoint(self, table: Table, endpoint: str) -> ColumnElement[bool] | None:  # noqa: ARG002 - for overriders
        """Which rows are the endpoint's; None: all of them."""
        return None

    def shelves(self, connection: Connection, source: Table) -> Table | None:  # noqa: ARG002 - for overriders
        """A table whose ids may wait beside those of `source`, or soon will; None: there is none."""
        return None

    def free(self, table: Table, now: datetime) -> ColumnElement[bool] | None:  # noqa: ARG002 - for overriders
        """Which rows no dispatcher has claimed at `now`; None: row locks tell."""
        return None

    def types(self) -> Mapping[str, TypeEngine[Any]]:
        """Types for columns that reflection does not tell well enough."""
        return {}
