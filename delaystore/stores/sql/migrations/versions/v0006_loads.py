"""The latest delivery time of a message, its load, the shift of an operation, and the number of expired messages."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import ExactText, UtcDateTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add missing parts only: not every database undoes an interrupted set-up, and a large table may be prepared.

    The columns may be NULL and are added at once. The index has no row of messages that no load stored, but the
    database reads the whole table to build it, and no session writes meanwhile. To prepare a large table of PostgreSQL,
    create the index by CREATE INDEX CONCURRENTLY with this name, columns and condition.
    """
    options = op.get_context().opts
    options["delaystore_alter"](op.get_bind(), _alter_messages)
    options["delaystore_alter"](op.get_bind(), _alter_operations)


def _alter_messages() -> None:
    options = op.get_context().opts
    name, schema = options["delaystore_table"], options["delaystore_schema"]
    _add_columns(name, [sa.Column("not_after", UtcDateTime), sa.Column("load_number", sa.Integer)])
    if f"{name}_load" not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(name, schema=schema)}:
        of_loads = sa.text("load_number IS NOT NULL")
        columns = ["load_number", "message_id"]
        op.create_index(f"{name}_load", name, columns, schema=schema, postgresql_where=of_loads, sqlite_where=of_loads)
    options["delaystore_alter_shelves"]()


def _alter_operations() -> None:
    _, _, activity, operations, _ = op.get_context().opts["delaystore_beside"]
    _add_columns(operations, [sa.Column("shift", sa.BigInteger), sa.Column("time_zone", ExactText(255))])
    _add_columns(activity, [sa.Column("expired", sa.BigInteger)])


def _add_columns(table: str, columns: list[sa.Column[Any]]) -> None:
    schema = op.get_context().opts["delaystore_schema"]
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column, schema=schema)
