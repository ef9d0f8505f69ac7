"""Where messages wait now."""

from typing import Final

from delaystore.errors import ConfigurationError, UnknownSchemeError
from delaystore.migrations.abc import MigrationSource

LEGACY: Final = ("nservicebus-sql", "msmq-sql", "nhibernate")
"""Before a database's URL and a `+`: whose tables they are."""
STORES: Final = ("sqlite", "postgresql", "mysql", "mariadb", "mssql")
"""The URLs of a delaystore SQL store."""
FILE: Final = "file"


def open_source(url: str) -> MigrationSource:
    """The source at `url`.

    - `postgresql://...`, `mysql://...`, `sqlite://...` and so on: a delaystore store;
    - `nservicebus-sql+postgresql://...`, `msmq-sql+...`, `nhibernate+...`: tables of other programs in a database;
    - `file:///PATH.jsonl` or `file:///PATH.parquet`: a file of messages.

    Raises UnknownSchemeError, ConfigurationError for a URL that cannot work, MissingDependencyError for a missing
    library.
    """
    scheme, mark, rest = url.partition(":")
    if not mark or not scheme:
        raise ConfigurationError("that is no URL of a source; it must start with a scheme, as in postgresql://")
    kind, _, database = scheme.lower().partition("+")
    if kind in LEGACY:
        if not database:
            raise ConfigurationError(f"{kind} needs a database's URL after a +, as in {kind}+postgresql://host/name")
        from delaystore.migrations.sources.legacy.opening import open_legacy_source

        return open_legacy_source(kind, f"{database}:{rest}")
    if kind in STORES:
        from delaystore.migrations.sources.sql.opening import open_delaystore_source

        return open_delaystore_source(url)
    if scheme.lower() == FILE:
        from delaystore.migrations.sources.file.source import FileSource

        return FileSource(url)
    known = ", ".join((*STORES, *(f"{name}+..." for name in LEGACY), FILE))
    raise UnknownSchemeError(f"nothing can be migrated from {scheme!r}; known schemes: {known}")
