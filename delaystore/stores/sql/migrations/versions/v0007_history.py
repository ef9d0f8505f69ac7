"""The history, settings of the endpoint, and the index of the audit trail by message."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import DIGEST, INNODB, ExactText, Json, UtcDateTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create missing tables and indexes: not every database undoes an interrupted set-up.

    The database reads the whole audit trail to build its index, and no session writes it meanwhile.
    """
    options, connection = op.get_context().opts, op.get_bind()
    schema = options["delaystore_schema"]
    settings, history = options["delaystore_history"]
    inspector = sa.inspect(connection)
    waiting = sa.Table(options["delaystore_table"], sa.MetaData(), schema=schema, quote=True)
    if not inspector.has_table(settings, schema=schema):
        made = op.create_table(settings, *_settings(), schema=schema, quote=True, **INNODB)
        options["delaystore_opening_to_operators"](connection, [made], waiting)
    if not inspector.has_table(history, schema=schema):
        columns = [*options["delaystore_history_columns"], *_history()]
        op.create_table(history, *columns, schema=schema, quote=True, **options["delaystore_history_options"])
    _create_index("_history_id", history, ["message_id"])
    _create_index("_history_key", history, ["message_key"], "message_key IS NOT NULL")
    _create_index("_history_ended", history, ["ended_at", "message_id"])
    options["delaystore_make_history"](connection, history, options["delaystore_history_partition"], waiting)

    def index_changes() -> None:
        _create_index("_changes_id", options["delaystore_beside"][4], ["message_id"], "message_id IS NOT NULL")

    options["delaystore_alter"](connection, index_changes)


def _create_index(suffix: str, table: str, columns: list[str], where: str | None = None) -> None:
    options = op.get_context().opts
    name, schema = options["delaystore_derived"](suffix), options["delaystore_schema"]
    if name not in {each["name"] for each in sa.inspect(op.get_bind()).get_indexes(table, schema=schema)}:
        rows = None if where is None else sa.text(where)
        op.create_index(name, table, columns, schema=schema, postgresql_where=rows, sqlite_where=rows)


def _settings() -> list[sa.Column[Any]]:
    return [sa.Column("name", ExactText(50), primary_key=True), sa.Column("value", Json, nullable=False)]


def _history() -> list[sa.Column[Any]]:
    return [
        sa.Column("message_id", ExactText(255), nullable=False),
        sa.Column("message_key", ExactText(255)),
        sa.Column("load_number", sa.Integer),
        sa.Column("destination", ExactText(1600), nullable=False),
        sa.Column("due_time", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("ending", ExactText(20), nullable=False),
        sa.Column("ended_by", ExactText(255)),
        sa.Column("body_hash", DIGEST),
        sa.Column("failures", Json),
    ]
