"""Which columns rows have, in any case and order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.loading.conversion.types import DataType, Field
from delaystore.sql.columns import SENT

MESSAGE_COLUMNS: Final = (*(column.name for column in SENT), "delay", "body_base64")
UNREADABLE: Final = "delaystore_unreadable"
"""The column that says why a row of a file or export could not be read: it is rejected for that. Null: it could."""
_NAMED: Final = 10
"""Columns named in an error."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the rows have it."""

    index: int
    name: str
    type: DataType

    def wrong(self, do: str) -> ConfigurationError:
        """The error for its type; `do`: what helps."""
        return ConfigurationError(f"column {self.name} is {self.type.name}: {do}")


class Columns:
    """The columns of a schema by name; ConfigurationError if two have the same but for case."""

    def __init__(self, schema: Sequence[Field]) -> None:
        found: dict[str, Column] = {}
        for index, field in enumerate(schema):
            column = Column(index, field.name, field.type)
            other = found.setdefault(field.name.lower(), column)
            if other is not column:
                raise ConfigurationError(
                    f"columns {other.name} and {column.name} have one name but for case; rename or drop one"
                )
        self._by_name: Mapping[str, Column] = found

    def get(self, name: str) -> Column | None:
        """The column; None: there is none."""
        return self._by_name.get(name.lower())

    def unknown(self) -> Iterator[Column]:
        """Those that are not a message's, in order."""
        return (column for name, column in self._by_name.items() if name not in (*MESSAGE_COLUMNS, UNREADABLE))

    def __str__(self) -> str:
        return listed([column for name, column in self._by_name.items() if name != UNREADABLE])


def listed(columns: list[Column]) -> str:
    """Their names and types."""
    named = ", ".join(f"{_shown(column.name)} ({column.type.name})" for column in columns[:_NAMED])
    return f"{named} and {len(columns) - _NAMED} more" if len(columns) > _NAMED else named


def _shown(name: str) -> str:
    """In quotes where it would be taken for another one: a space before or behind it, or a tab in it."""
    return name if name.isprintable() and name == name.strip() else repr(name)
