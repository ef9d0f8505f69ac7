"""Recurring schedules."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import INNODB, Body, ExactText, Json, UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and its index where they are missing: not every database undoes an interrupted set-up."""
    options, connection = op.get_context().opts, op.get_bind()
    name, schema = options["delaystore_schedules"], options["delaystore_schema"]
    if not sa.inspect(connection).has_table(name, schema=schema):
        made = op.create_table(name, *_columns(), schema=schema, quote=True, **INNODB)
        waiting = sa.Table(options["delaystore_table"], sa.MetaData(), schema=schema, quote=True)
        options["delaystore_opening_to_operators"](connection, [made], waiting)
    index = options["delaystore_derived"]("_schedules_look")
    if index not in {each["name"] for each in sa.inspect(connection).get_indexes(name, schema=schema)}:
        is_active = sa.text("look_at IS NOT NULL")
        columns = ["look_at", "name"]
        op.create_index(index, name, columns, schema=schema, postgresql_where=is_active, sqlite_where=is_active)


def _columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("name", ExactText(255), primary_key=True),
        sa.Column("destination", ExactText(1600), nullable=False),
        sa.Column("body", Body, nullable=False),
        sa.Column("headers", Json),
        sa.Column("properties", Json),
        sa.Column("definition", Json, nullable=False),
        sa.Column("zone", ExactText(255), nullable=False),
        sa.Column("zone_rules", ExactText(20), nullable=False),
        sa.Column("paused", sa.Integer, nullable=False),
        sa.Column("next_due", UtcDateTime),
        sa.Column("look_at", UtcDateTime),
        sa.Column("progress", Json, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("changed", UtcDateTime, nullable=False),
        sa.Column("changed_by", ExactText(255), nullable=False),
    ]
