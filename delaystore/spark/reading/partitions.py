"""Parts of about equal size, by the time at which messages want attention.

That is their due time, for all that have not failed, and it is indexed together with the message_id: so a part can
also begin in the middle of a million messages that are due at the same instant. Boundaries come from a sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, func, literal, select, text, tuple_

from delaystore.spark.reading.filters import Condition, clauses
from delaystore.stores.sql.names import quoted_name
from delaystore.stores.sql.types import UtcDateTime

SAMPLED_BLOCKS: Final = 1000
"""Pages of the table that a sample reads; each holds the rows of one moment's writing."""
PLACES: Final = 5000
"""Rows that a sample returns, about; all of a small table."""
ROWS_PER_PART: Final = 50_000
BYTES_PER_PART: Final = 128 * 2**20
"""Below these another part costs more than it gains."""

Place = tuple[datetime, str]
"""A next_attempt and a message_id: a place in the index."""


@dataclass(frozen=True)
class Sample:
    """Places in the order of the index, about how many messages they stand for, and the bytes of the whole table."""

    places: Sequence[Place]
    rows: int
    table_bytes: int

    def part_count(self, most: int) -> int:
        """How many parts are worth their while, from 1 to `most`."""
        return max(1, min(most, max(self.rows // ROWS_PER_PART, self.table_bytes // BYTES_PER_PART)))

    def boundaries(self, parts: int) -> Sequence[Place]:
        """Places that split the messages into `parts`, or fewer if the sample has not as many places."""
        count = len(self.places)
        return sorted({self.places[number * count // parts] for number in range(1, parts)} if count else ())


def sample(connection: Connection, table: Table, conditions: Sequence[Condition]) -> Sample:
    """Look at some rows of some pages of a PostgreSQL table, for the messages that fulfil the conditions."""
    blocks, density, table_bytes = connection.execute(_SIZES, {"name": quoted_name(table, connection.dialect)}).one()
    share = min(1.0, SAMPLED_BLOCKS / max(blocks, 1))
    kept = min(1.0, PLACES / max(blocks * share * density, 1.0))
    some = table.tablesample(func.system(share * 100))
    wanted = clauses(some, conditions) if kept == 1.0 else [*clauses(some, conditions), func.random() < kept]
    rows = connection.execute(select(some.c.next_attempt, some.c.message_id).where(*wanted))
    places = sorted((row.next_attempt, row.message_id) for row in rows)
    return Sample(places, int(len(places) / (share * kept)), table_bytes)


def between(table: Table, since: Place | None, until: Place | None) -> Sequence[ColumnElement[bool]]:
    """Whether a row lies from `since` on and before `until`; None: without end."""
    place = tuple_(table.c.next_attempt, table.c.message_id)
    bounds = [] if since is None else [place >= _place(table, since)]
    return bounds if until is None else [*bounds, place < _place(table, until)]


def _place(table: Table, place: Place) -> ColumnElement[tuple[datetime, str]]:
    time, message_id = place
    return tuple_(literal(time, UtcDateTime), literal(message_id, table.c.message_id.type))


_SIZES: Final = text(
    "SELECT pg_relation_size(oid) / current_setting('block_size')::int,"
    " greatest(reltuples / greatest(relpages, 1), 1), pg_table_size(oid)"
    " FROM pg_class WHERE oid = CAST(:name AS regclass)"
)
"""How many pages a table has, how many rows on each (1: nobody has counted), and its bytes with all that is large."""
