"""The latest delivery of a message, its load, the shift of an operation, expired messages, and tables of loads."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import INNODB, ExactText, UtcDateTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add missing columns and tables: not every database undoes an interrupted set-up, and users may prepare a table.

    The columns may be NULL and are added at once. The index has no row of messages that no load stored, but the
    database reads the whole table to build it, and no session writes meanwhile. To prepare a large table of PostgreSQL,
    create the index by CREATE INDEX CONCURRENTLY with this name, columns and condition.
    """
    options, connection = op.get_context().opts, op.get_bind()
    schema, inspector = options["delaystore_schema"], sa.inspect(connection)
    tables = ((options["delaystore_loads"], _loads()), (options["delaystore_load_changes"], _load_changes()))
    made = [
        op.create_table(name, *columns, schema=schema, quote=True, **INNODB)
        for name, columns in tables
        if not inspector.has_table(name, schema=schema)
    ]
    for alter in (_alter_messages, _alter_operations, _alter_loads):
        options["delaystore_alter"](connection, alter)
    waiting = sa.Table(options["delaystore_table"], sa.MetaData(), schema=schema, quote=True)
    options["delaystore_opening_to_operators"](connection, made, waiting)


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


def _alter_loads() -> None:
    options = op.get_context().opts
    name, schema, index = options["delaystore_loads"], options["delaystore_schema"], options["delaystore_loads_number"]
    _add_columns(name, _loads_as_units())
    if index not in {each["name"] for each in sa.inspect(op.get_bind()).get_indexes(name, schema=schema)}:
        op.create_index(index, name, ["number"], schema=schema, unique=True)


def _loads() -> list[sa.Column[Any]]:
    """The table that earlier releases made with their first load."""
    return [
        sa.Column("load_id", ExactText(255), primary_key=True),
        sa.Column("is_stream", sa.Integer, nullable=False),
        sa.Column("batch", sa.BigInteger),
        sa.Column("token", ExactText(20)),
        sa.Column("host", ExactText(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("place", ExactText(255)),
        sa.Column("process_started", sa.BigInteger),
        sa.Column("began", UtcDateTime, nullable=False),
        sa.Column("heartbeat", UtcDateTime, nullable=False),
        sa.Column("lease_until", UtcDateTime, nullable=False),
        sa.Column("finished_at", UtcDateTime),
        sa.Column("stored", sa.BigInteger),
        sa.Column("skipped", sa.BigInteger),
    ]


def _loads_as_units() -> list[sa.Column[Any]]:
    return [
        sa.Column("messages", sa.BigInteger),
        sa.Column("rejected", sa.BigInteger),
        sa.Column("first_due", UtcDateTime),
        sa.Column("last_due", UtcDateTime),
        sa.Column("cancelled_at", UtcDateTime),
        sa.Column("cancelled_by", ExactText(255)),
        sa.Column("number", sa.Integer),
    ]


def _load_changes() -> list[sa.Column[Any]]:
    return [
        sa.Column("load_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("change_id", ExactText(36), primary_key=True),
        sa.Column("action", ExactText(20), nullable=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
    ]


def _add_columns(table: str, columns: list[sa.Column[Any]]) -> None:
    schema = op.get_context().opts["delaystore_schema"]
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table, schema=schema)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column, schema=schema)
