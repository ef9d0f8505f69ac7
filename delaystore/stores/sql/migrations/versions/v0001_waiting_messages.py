"""The table in which messages wait."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import INNODB, Body, ExactText, Json, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and its indexes, unless they exist: not every database undoes an interrupted set-up."""
    options = op.get_context().opts
    name, schema, leases = options["delaystore_table"], options["delaystore_schema"], options["delaystore_leases"]
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(name, schema=schema):
        _create_table(name, schema, leases)
        table = sa.Table(name, sa.MetaData(), schema=schema, quote=True)
        quoted = op.get_bind().dialect.identifier_preparer.format_table(table)
        for statement in options["delaystore_storage_options"]:
            op.get_bind().exec_driver_sql(statement.format(table=quoted))
    existing = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(name, schema=schema)}

    def add() -> None:
        if f"{name}_due" not in existing:
            op.create_index(f"{name}_due", name, ["next_attempt", "message_id"], schema=schema)
        if leases and f"{name}_claims" not in existing:
            where = sa.text("claimed_by IS NOT NULL")
            op.create_index(f"{name}_claims", name, ["claimed_until"], schema=schema, sqlite_where=where)

    options["delaystore_alter"](op.get_bind(), add)


def _create_table(name: str, schema: str | None, leases: bool) -> None:
    without_types: list[Any] = []
    if leases:  # SQLite has no types: one text that is no time would make every fetch fail
        moment = "[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]." + "[0-9]" * 6
        times = " AND ".join(f"{column} GLOB '{moment}'" for column in ("due_time", "next_attempt"))
        without_types = [
            sa.Column("claimed_by", ExactText(36)),
            sa.Column("claimed_until", UtcDateTime),
            sa.CheckConstraint(f"typeof(body) = 'blob' AND {times}".replace(":", r"\:")),
        ]
    op.create_table(
        name,
        sa.Column("message_id", ExactText(255), primary_key=True),
        sa.Column("destination", ExactText(1600), nullable=False),
        sa.Column("due_time", UtcDateTime, nullable=False),
        sa.Column("next_attempt", UtcDateTime, nullable=False),
        sa.Column("failure_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("headers", Json),
        sa.Column("properties", Json),
        sa.Column("body", Body, nullable=False),
        *without_types,
        schema=schema,
        quote=True,
        **INNODB,
    )
