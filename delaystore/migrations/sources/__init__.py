"""Where messages are moved from, by URL."""

from typing import Final

from delaystore.errors import ConfigurationError, UnknownSchemeError
from delaystore.migrations.abc import MigrationSource
from delaystore.registry import what_to_write

__all__ = ["open_source"]
_LEGACY: Final = ("nservicebus-sql", "msmq-sql", "nhibernate", "apscheduler")
"""The prefix before a `+` and the URL of a database: whose tables they are."""
_FILE: Final = "file"


def open_source(url: str) -> MigrationSource:
    """The source at `url`.

    - `postgresql://...`, `mysql://...`, `sqlite://...` and so on: a delaystore store;
    - `nservicebus-sql+postgresql://...`, `msmq-sql+...`, `nhibernate+...`, `apscheduler+...?destination=QUEUE`: tables
      of other programs in a database;
    - `file:///PATH.jsonl` or `file:///PATH.parquet`: a file of messages.

    Raises UnknownSchemeError, ConfigurationError for a URL that cannot work, MissingDependencyError for a missing
    library.
    """
    scheme, mark, rest = url.partition(":")
    if not mark or not scheme:
        raise ConfigurationError("that is no URL of a source; it must start with a scheme, as in postgresql://")
    kind, _, database = scheme.lower().partition("+")
    if kind in _LEGACY:
        if not database:
            raise ConfigurationError(f"{kind} needs a database's URL after a +, as in {kind}+postgresql://host/name")
        from delaystore.migrations.sources.legacy import open_legacy_source

        return open_legacy_source(kind, f"{database}:{rest}")
    if scheme.lower() == _FILE:
        from delaystore.migrations.sources._file.source import FileSource

        return FileSource(url)
    from delaystore.stores.sql.dialects import STORE_DIALECTS

    if kind in STORE_DIALECTS:
        from delaystore.migrations.sources._sql.source import open_delaystore_source

        return open_delaystore_source(url)
    known = (*STORE_DIALECTS, *(f"{name}+..." for name in _LEGACY), _FILE)
    raise UnknownSchemeError(f"nothing can be migrated from {scheme!r}; {what_to_write(kind, known)}")
