"""Why forwarding has failed, an index of what has failed, and the tables of what operators and dispatchers note."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import INNODB, ExactText, Json, UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there: not every database undoes an interrupted set-up, and a large table may be prepared.

    The columns are added at once. The index has no row of what has not failed, but it takes a reading of the whole
    table, for which nobody writes: a second, about, for each two million messages in memory. Who has more prepares it,
    on PostgreSQL by CREATE INDEX CONCURRENTLY with this name, columns and condition.
    """
    options = op.get_context().opts
    options["delaystore_alter"](op.get_bind(), _alter)
    inspector, schema = sa.inspect(op.get_bind()), options["delaystore_schema"]
    made = [_create(table, schema) for table in _tables() if not inspector.has_table(table[0], schema=schema)]
    began, operations = options["delaystore_began"], options["delaystore_beside"][3]
    indexes = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(operations, schema=schema)}
    if began not in indexes:
        op.create_index(began, operations, ["began", "operation_id"], schema=schema)
    waiting = sa.Table(options["delaystore_table"], sa.MetaData(), schema=schema, quote=True)
    options["delaystore_opening_to_operators"](op.get_bind(), made, waiting)


def _alter() -> None:
    options, connection = op.get_context().opts, op.get_bind()
    name, schema = options["delaystore_table"], options["delaystore_schema"]
    columns = {column["name"] for column in sa.inspect(connection).get_columns(name, schema=schema)}
    new: list[sa.Column[Any]] = [sa.Column("failures", Json), sa.Column("failures_of", ExactText(255))]
    order = ["next_attempt", "message_id"]
    if not options["delaystore_partial_indexes"]:
        when = sa.Computed("CASE WHEN failure_count > 0 THEN next_attempt END", persisted=False)
        new.append(sa.Column("failing_at", UtcDateTime, when))
        order[0] = "failing_at"
    for column in new:
        if column.name not in columns:
            op.add_column(name, column, schema=schema)
    if f"{name}_failing" not in {index["name"] for index in sa.inspect(connection).get_indexes(name, schema=schema)}:
        where = sa.text("failure_count > 0")
        op.create_index(f"{name}_failing", name, order, schema=schema, postgresql_where=where, sqlite_where=where)
    options["delaystore_alter_shelves"]()


def _tables() -> list[tuple[str, list[sa.Column[Any]]]]:
    destinations, dispatchers, activity, operations, changes = op.get_context().opts["delaystore_beside"]
    return [
        (
            destinations,
            [
                sa.Column("name", ExactText(1600), primary_key=True),
                sa.Column("paused", sa.Integer, nullable=False),
                sa.Column("paused_until", UtcDateTime),
                sa.Column("resuming", sa.Integer, nullable=False),
                sa.Column("max_rate", sa.Double),
                sa.Column("full_at", UtcDateTime),
                sa.Column("promised", UtcDateTime),
                sa.Column("changed", UtcDateTime, nullable=False),
                sa.Column("changed_by", ExactText(255), nullable=False),
            ],
        ),
        (
            dispatchers,
            [
                sa.Column("dispatcher_id", ExactText(255), primary_key=True),
                sa.Column("beat", UtcDateTime, nullable=False),
                sa.Column("record", Json, nullable=False),
            ],
        ),
        (
            activity,
            [
                sa.Column("minute", UtcDateTime, primary_key=True),
                sa.Column("dispatcher_id", ExactText(255), primary_key=True),
                sa.Column("delivered", sa.BigInteger, nullable=False),
                sa.Column("failed", sa.BigInteger, nullable=False),
                sa.Column("moved_to_error_queue", sa.BigInteger, nullable=False),
                sa.Column("gave_way", sa.BigInteger, nullable=False),
                sa.Column("lateness", Json, nullable=False),
                sa.Column("by_destination", Json, nullable=False),
            ],
        ),
        (
            operations,
            [
                sa.Column("operation_id", ExactText(255), primary_key=True),
                sa.Column("kind", ExactText(20), nullable=False),
                sa.Column("wanted", Json, nullable=False),
                sa.Column("begun_by", ExactText(255), nullable=False),
                sa.Column("began", UtcDateTime, nullable=False),
                sa.Column("due_time", UtcDateTime),
                sa.Column("ended", UtcDateTime),
                sa.Column("state", ExactText(20), nullable=False),
                sa.Column("after_id", ExactText(255)),
                sa.Column("examined", sa.BigInteger, nullable=False),
                sa.Column("changed", sa.BigInteger, nullable=False),
                sa.Column("held", sa.BigInteger, nullable=False),
                sa.Column("held_ids", Json, nullable=False),
            ],
        ),
        (
            changes,
            [
                sa.Column("made_at", UtcDateTime, primary_key=True),
                sa.Column("change_id", ExactText(36), primary_key=True),
                sa.Column("made_by", ExactText(255), nullable=False),
                sa.Column("action", ExactText(255), nullable=False),
                sa.Column("about", ExactText(4000), nullable=False),
                sa.Column("messages", sa.BigInteger, nullable=False),
            ],
        ),
    ]


def _create(table: tuple[str, list[sa.Column[Any]]], schema: str | None) -> sa.Table:
    name, columns = table
    return op.create_table(name, *columns, schema=schema, quote=True, **INNODB)
