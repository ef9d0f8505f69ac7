"""An endpoint that a database does not have: a typo, or one that is new."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from delaystore.calls import Call
from delaystore.cli._files import UnknownEndpointError
from delaystore.errors import DelaystoreError
from delaystore.stores import DelayedMessageStore

if TYPE_CHECKING:
    from delaystore.stores.sql import SqlDelayedMessageStore

_SHOWN: Final = 5
"""Endpoints that are named where none is similar."""
_SECONDS: Final = 30.0
"""How long the store may take to say what tables it has."""
_CREATE: Final = "for a new one add --create, or run `delaystore setup` first"


def require_tables(store: DelayedMessageStore, endpoint: str) -> None:
    """UnknownEndpointError where a SQL store has no tables, which names similar endpoints and says how to make it.

    Raises StoreError.
    """
    from delaystore.stores.sql import SqlDelayedMessageStore
    from delaystore.stores.sql.catalog import version_of

    if not isinstance(store, SqlDelayedMessageStore):
        return
    with Call("looking for the endpoint's tables", _SECONDS):
        if version_of(store.engine, store.table) is None:
            raise _unknown(store, endpoint, _CREATE)


def explained(error: DelaystoreError, store: DelayedMessageStore, endpoint: str) -> DelaystoreError:
    """`error`, of a store whose tables are missing; a better one where the endpoint is not known to the database."""
    from delaystore.stores.sql import SqlDelayedMessageStore
    from delaystore.stores.sql.catalog import version_of

    if not isinstance(store, SqlDelayedMessageStore):
        return error
    try:
        with Call("looking for the endpoint's tables", _SECONDS):
            if version_of(store.engine, store.table) is not None:
                return error
            return _unknown(store, endpoint, "check its name, --store and --schema, or run `delaystore setup`")
    except DelaystoreError:
        return error


def _unknown(store: "SqlDelayedMessageStore", endpoint: str, remedy: str) -> UnknownEndpointError:
    from delaystore.sql.names import default_table_name
    from delaystore.stores.sql.catalog import endpoint_tables

    table = store.table
    found = endpoint_tables(store.engine, table.schema)
    if table.name == default_table_name(endpoint):
        what, wanted, known = f"endpoint {endpoint!r}", endpoint, [each.endpoint for each in found if each.endpoint]
    else:
        what, wanted, known = f"table {table.name!r}", table.name, [each.table for each in found]
    where = "this database" if table.schema is None else f"the schema {table.schema!r}"
    return UnknownEndpointError(f"there is no {what} in {where} ({_similar(wanted, known)}); {remedy}")


def _similar(wanted: str, known: list[str]) -> str:
    similar = get_close_matches(wanted, known, n=3)
    if similar:
        return f"did you mean {' or '.join(map(repr, similar))}?"
    if not known:
        return "it has none"
    more = f", and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"it has {', '.join(map(repr, known[:_SHOWN]))}{more}"
