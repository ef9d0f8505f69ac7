"""How large a database says that its tables are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """A table in which messages wait, as the database's own records have it; None: it does not tell."""

    name: str
    """Quoted where the database asks for that; SQLite: the path of its file, which holds all tables."""
    data_bytes: int
    """Of the rows, and of what is kept beside them, such as long bodies."""
    index_bytes: int | None
    rows: int | None
    """About how many; not counted."""
    dead_rows: int | None
    """About how many deleted or changed ones still take space."""
