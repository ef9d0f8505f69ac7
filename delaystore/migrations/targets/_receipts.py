"""Which rows of a run a SQL store has taken, written in the transactions that store them."""

import json
from collections.abc import Iterable, Set
from hashlib import sha256
from itertools import groupby
from typing import Final

from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect, select, update
from sqlalchemy.exc import IntegrityError

from delaystore.migrations.abc import Batch, Run
from delaystore.sql.dialects import StoreDialect
from delaystore.sql.faults import Fault
from delaystore.sql.names import derived_name
from delaystore.sql.types import INNODB, Json

RECEIPTS: Final = "_received_"
"""After the name of the store's table, before digits of the run: the table of its receipts."""
_DIGITS: Final = 12


class Receipts:
    """The receipts of `run`, in a table of their own beside the store's `table`: a row for each batch.

    A run has its own table, so that a process that was believed dead finds none once the run is cleaned up.
    """

    def __init__(self, table: Table, run: Run, dialect: StoreDialect) -> None:
        name = derived_name(table.name, RECEIPTS + sha256(run.run_id.encode()).hexdigest()[:_DIGITS], dialect)
        self._table = Table(
            name,
            MetaData(),
            Column("batch", Integer, primary_key=True, autoincrement=False),
            Column("positions", Json, nullable=False),
            schema=table.schema,
            quote=True,
            quote_schema=True if table.schema else None,
            **INNODB,
        )
        self._dialect = dialect

    def create(self, connection: Connection) -> None:
        """Make the table, unless it is there. The caller commits."""
        self._table.create(connection, checkfirst=True)

    def drop(self, connection: Connection) -> None:
        """Drop the table, if it is there. The caller commits."""
        self._table.drop(connection, checkfirst=True)

    def exist(self, connection: Connection) -> bool:
        """Whether there is the table."""
        return inspect(connection).has_table(self._table.name, schema=self._table.schema)

    def locked(self, connection: Connection, batch: Batch) -> Set[int]:
        """The positions of the batch's rows that were stored; nobody else stores any until the transaction ends.

        An empty receipt is inserted where there is none: that waits for the commit of a process that died meanwhile,
        which a search would not see.
        """
        self._insert_empty(connection, batch)
        columns = self._table.c
        found = select(columns.positions).where(columns.batch == batch.number).with_for_update()
        ranges = json.loads(connection.execute(found).scalar_one())
        return {position for first, last in ranges for position in range(first, last + 1)}

    def write(self, connection: Connection, batch: Batch, positions: Set[int]) -> None:
        """Note that the batch's rows at these positions, and no others, are stored; the receipt is locked."""
        change = update(self._table).where(self._table.c.batch == batch.number)
        connection.execute(change.values(positions=json.dumps(list(_ranges(positions)))))

    def _insert_empty(self, connection: Connection, batch: Batch) -> None:
        try:
            connection.execute(self._dialect.insert(self._table), {"batch": batch.number, "positions": "[]"})
        except IntegrityError as error:
            if self._dialect.fault(error) is not Fault.DUPLICATE:
                raise


def _ranges(positions: Iterable[int]) -> Iterable[tuple[int, int]]:
    """The first and the last of each row of successive numbers."""
    for _, group in groupby(enumerate(sorted(positions)), lambda entry: entry[1] - entry[0]):
        numbers = [number for _, number in group]
        yield numbers[0], numbers[-1]
