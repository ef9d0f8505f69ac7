"""An endpoint's table with its shelves, and statements about them."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, CursorResult, Table, text

from delaystore.sql.dialects import StoreDialect
from delaystore.sql.quoting import escaped, quoted_name


@dataclass(frozen=True, slots=True)
class Family:
    """An endpoint's table `live`, and `parent`, the one whose children are its shelves: those not attached yet, too."""

    live: Table
    parent: Table
    dialect: StoreDialect

    def execute(
        self, connection: Connection, statement: str, shelf: Table | None = None, **values: Any
    ) -> CursorResult[Any]:
        """Execute `statement`; the tables are {live}, {shelves} and {shelf} in it, or parameters of these names."""
        tables = {"live": self.live, "shelves": self.parent} | ({} if shelf is None else {"shelf": shelf})
        names = {key: quoted_name(table, connection.dialect) for key, table in tables.items()}
        words = {key: escaped(name) for key, name in names.items()}
        return connection.execute(text(statement.format(**words)), names | values)
