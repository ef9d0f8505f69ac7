"""Sources by URL."""

from sqlalchemy import make_url

from delaystore.migrations.sources.sql.delaystore import DelaystoreShape
from delaystore.migrations.sources.sql.source import SqlSource
from delaystore.stores.sql.translation import configuration_errors


def open_delaystore_source(url: str) -> SqlSource:
    """The delaystore SQL store at `url`; `?schema=NAME` and `?table=NAME` say where it is not at its default place."""
    with configuration_errors():
        parsed = make_url(url)
    table = parsed.query.get("table")
    shape = DelaystoreShape(table if isinstance(table, str) else None)
    return SqlSource(parsed.difference_update_query(["table"]).render_as_string(hide_password=False), shape)
