"""The columns and the index of messages with a key."""

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import ExactText, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there: not every database undoes an interrupted set-up, and a large table may be prepared.

    Columns without a value are added at once; the index is of no rows, but PostgreSQL reads all to find that.
    """
    options = op.get_context().opts
    name, schema = options["delaystore_table"], options["delaystore_schema"]
    inspector = sa.inspect(op.get_bind())
    columns = {column["name"] for column in inspector.get_columns(name, schema=schema)}
    indexes = {index["name"] for index in inspector.get_indexes(name, schema=schema)}
    has_key = sa.text("message_key IS NOT NULL")

    def add() -> None:
        for column in (sa.Column("message_key", ExactText(255)), sa.Column("first_sent", UtcDateTime)):
            if column.name not in columns:
                op.add_column(name, column, schema=schema)
        if f"{name}_keys" not in indexes:
            op.create_index(
                f"{name}_keys",
                name,
                ["message_key"],
                schema=schema,
                unique=True,
                postgresql_where=has_key,
                sqlite_where=has_key,
            )

    options["delaystore_alter"](op.get_bind(), add)
