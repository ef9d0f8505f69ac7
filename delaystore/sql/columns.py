"""The columns of a waiting message, listed only here: tables, copies, stagings and reads derive from COLUMNS."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Column, ColumnElement, FromClause, Integer
from sqlalchemy.types import TypeEngine

from delaystore.message import MAX_ADDRESS_BYTES, MAX_KEY_BYTES, MAX_MESSAGE_ID_BYTES, Position
from delaystore.sql.types import Body, ExactText, Json, UtcDateTime

KEY: Final = "message_id"
_Value = TypeVar("_Value")


class MessageColumn(NamedTuple):
    """The column of one attribute of DelayedMessage.

    `at_first`: its value in a new row: that of the column of this name, or this number; None: the sender's value.
    """

    name: str
    type: TypeEngine[Any]
    nullable: bool = False
    at_first: str | int | None = None

    def in_table(self) -> Column[Any]:
        """The column of a table in which messages wait."""
        default = str(self.at_first) if isinstance(self.at_first, int) else None
        return Column(
            self.name, self.type, primary_key=self.name == KEY, nullable=self.nullable, server_default=default
        )


COLUMNS: Final = (
    MessageColumn(KEY, ExactText(MAX_MESSAGE_ID_BYTES)),
    MessageColumn("destination", ExactText(MAX_ADDRESS_BYTES)),
    MessageColumn("due_time", UtcDateTime()),
    MessageColumn("next_attempt", UtcDateTime(), at_first="due_time"),
    MessageColumn("failure_count", Integer(), at_first=0),
    MessageColumn("headers", Json(), nullable=True),
    MessageColumn("properties", Json(), nullable=True),
    MessageColumn("body", Body()),
)
"""In the order in which rows hold them."""
NAMES: Final = tuple(column.name for column in COLUMNS)
MESSAGE_KEY: Final = "message_key"
"""The column of a message's key; NULL: it has none."""
FIRST_SENT: Final = "first_sent"
"""The column of when the first of those messages was sent that have replaced one another under a key."""
FAILURES: Final = "failures"
"""The column of why forwarding has failed: a line for each attempt, as in `delaystore.failures`."""
FAILURES_OF: Final = "failures_of"
"""The column of the message_id whose failures these are: a row is given to another message with the same key."""
SENT: Final = tuple(column for column in COLUMNS if column.at_first is None)
"""The columns whose values the sender gives."""


def key_columns() -> list[Column[Any]]:
    """The columns that a table has for messages with a key; statements about others do not name them."""
    return [Column(MESSAGE_KEY, ExactText(MAX_KEY_BYTES)), Column(FIRST_SENT, UtcDateTime())]


def message_columns(table: FromClause) -> list[ColumnElement[Any]]:
    """The columns of `table` that hold a message, in the order of COLUMNS."""
    return [table.c[name] for name in NAMES]


def in_order(table: FromClause) -> list[ColumnElement[Any]]:
    """The columns of `table` by which messages are ordered: those of a Position."""
    return [table.c[name] for name in Position._fields]


def completed(sent: Mapping[str, _Value], number: Callable[[int], _Value]) -> list[_Value]:
    """The values of new rows, in the order of COLUMNS.

    `sent`: those of the columns in SENT, by name; `number` makes a value of the number in `at_first`.
    """
    return [
        number(column.at_first) if isinstance(column.at_first, int) else sent[column.at_first or column.name]
        for column in COLUMNS
    ]
