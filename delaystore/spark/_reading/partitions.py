"""Parts of about equal size, between positions in the order of next attempts.

That order is indexed, and a position has the message_id in it: so a part can also begin in the middle of a million
messages that are due at the same instant. Boundaries come from a sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, Tuple, func, literal, select, text, tuple_

from delaystore.message import Position, position_of
from delaystore.spark._reading.filters import Condition, clauses
from delaystore.sql.columns import in_order
from delaystore.sql.quoting import quoted_name

SAMPLED_BLOCKS: Final = 1000
"""Pages of the table that a sample reads; each holds the rows of one moment's writing."""
SAMPLED_ROWS: Final = 5000
"""About how many rows a sample returns; all of a small table."""
ROWS_PER_PART: Final = 50_000
BYTES_PER_PART: Final = 128 * 2**20
"""A part with fewer rows and bytes costs more than it gains."""


@dataclass(frozen=True)
class Sample:
    """Sorted positions, about how many messages they stand for, and the bytes of the whole table."""

    positions: Sequence[Position]
    rows: int
    table_bytes: int

    def part_count(self, most: int) -> int:
        """How many parts are worth their cost, from 1 to `most`."""
        return max(1, min(most, max(self.rows // ROWS_PER_PART, self.table_bytes // BYTES_PER_PART)))

    def boundaries(self, parts: int) -> Sequence[Position]:
        """Positions that split the messages into `parts`, or fewer if the sample has not as many."""
        count = len(self.positions)
        return sorted({self.positions[number * count // parts] for number in range(1, parts)} if count else ())


def sample(connection: Connection, table: Table, conditions: Sequence[Condition]) -> Sample:
    """Read some rows of some pages of a PostgreSQL table: messages that fulfil the conditions."""
    blocks, density, table_bytes = connection.execute(_SIZES, {"name": quoted_name(table, connection.dialect)}).one()
    share = min(1.0, SAMPLED_BLOCKS / max(blocks, 1))
    kept = min(1.0, SAMPLED_ROWS / max(blocks * share * density, 1.0))
    some = table.tablesample(func.system(share * 100))
    wanted = clauses(some, conditions) if kept == 1.0 else [*clauses(some, conditions), func.random() < kept]
    positions = sorted(map(position_of, connection.execute(select(*in_order(some)).where(*wanted))))
    return Sample(positions, int(len(positions) / (share * kept)), table_bytes)


def between(table: Table, since: Position | None, until: Position | None) -> Sequence[ColumnElement[bool]]:
    """Whether a row lies from `since` on and before `until`; None: without end."""
    position = tuple_(*in_order(table))
    bounds = [] if since is None else [position >= _literal(table, since)]
    return bounds if until is None else [*bounds, position < _literal(table, until)]


def _literal(table: Table, position: Position) -> Tuple:
    columns = in_order(table)
    return tuple_(*(literal(value, column.type) for value, column in zip(position, columns, strict=True)))


_SIZES: Final = text(
    "SELECT pg_relation_size(oid) / current_setting('block_size')::int,"
    " greatest(reltuples / greatest(relpages, 1), 1), pg_table_size(oid)"
    " FROM pg_class WHERE oid = CAST(:name AS regclass)"
)
"""How many pages a table has, how many rows on each (1: nobody has counted), and its bytes with all that is large."""
