"""What was moved, read again for the proof, a batch at a time."""

from collections.abc import Iterator, Sequence

from sqlalchemy import select

from delaystore.migrations.abc import BatchStatus, Run
from delaystore.migrations.checksum import Checksum, checksum
from delaystore.migrations.sources.sql.database import Database
from delaystore.migrations.sources.sql.reading import rows_of
from delaystore.migrations.sources.sql.shape import Identity
from delaystore.migrations.sources.sql.tables import RunTables


def moved_checksum(database: Database, tables: RunTables, run: Run) -> Checksum:
    """Over the rows themselves, not over what was noted of them."""
    return sum((checksum(page) for page in _moved(database, tables, run)), Checksum())


def moved_ids(database: Database, tables: RunTables, run: Run) -> Iterator[Sequence[str]]:
    """See the contract."""
    for page in _moved(database, tables, run):
        yield [message_id for message_id, _, _ in page]


def _moved(database: Database, tables: RunTables, run: Run) -> Iterator[Sequence[Identity]]:
    table, shape = tables.batches, tables.shape
    statement = select(table.c.number).where(
        table.c.run_id == run.run_id, table.c.status == BatchStatus.COMPLETED.value
    )
    with database.reading() as connection:
        numbers = connection.execute(statement.order_by(table.c.number)).scalars().all()
    names = list(dict.fromkeys([shape.id_column, *(shape.identity_columns or tables.names)]))
    for number in numbers:
        with database.reading() as connection:
            rows = rows_of(connection, tables, number, names)
        if rows:
            yield [shape.identity(row, tables.endpoint) for row in rows]
