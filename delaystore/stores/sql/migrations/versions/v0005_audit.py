"""The columns of the audit trail that say by which way what was changed."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import ExactText, Json, UtcDateTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is not there: not every database undoes an interrupted set-up.

    The columns may be NULL and are added at once. Earlier releases go on writing their rows, which lack them.
    """
    options, connection = op.get_context().opts, op.get_bind()
    name, schema = options["delaystore_beside"][4], options["delaystore_schema"]
    there = {column["name"] for column in sa.inspect(connection).get_columns(name, schema=schema)}
    new = [column for column in _columns() if column.name not in there]

    def add() -> None:
        for column in new:
            op.add_column(name, column, schema=schema)

    options["delaystore_alter"](connection, add)


def _columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("way", ExactText(20)),
        sa.Column("message_id", ExactText(255)),
        sa.Column("message_key", ExactText(255)),
        sa.Column("destination", ExactText(1600)),
        sa.Column("wanted", Json),
        sa.Column("operation_id", ExactText(255)),
        sa.Column("old_due_time", UtcDateTime),
        sa.Column("new_due_time", UtcDateTime),
    ]
