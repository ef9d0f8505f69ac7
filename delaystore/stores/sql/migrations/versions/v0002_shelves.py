"""The table whose children are the shelves, where the database has them."""

import sqlalchemy as sa
from alembic import op

from delaystore.stores.sql.codec import ExactText

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, unless it exists; whoever may send may read it, as an insert looks for its message_id there."""
    options, connection = op.get_context().opts, op.get_bind()
    name, schema = options["delaystore_shelves"], options["delaystore_schema"]
    if name is None or sa.inspect(connection).has_table(name, schema=schema):
        return
    op.create_table(name, sa.Column("message_id", ExactText(255), nullable=False), schema=schema, quote=True)
    shelves = sa.Table(name, sa.MetaData(), schema=schema, quote=True)
    waiting = sa.Table(options["delaystore_table"], sa.MetaData(), schema=schema, quote=True)
    options["delaystore_opening"](connection, shelves, waiting)
