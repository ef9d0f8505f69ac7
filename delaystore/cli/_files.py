"""SQLite files, which opening a store would create."""

from pathlib import Path

from delaystore.errors import ConfigurationError


class UnknownEndpointError(ConfigurationError):
    """The endpoint is not in the database, or the database is a SQLite file that does not exist."""


def require_file(url: str, *, may_create: bool = False) -> None:
    """UnknownEndpointError where `url` names a SQLite file that does not exist, and which opening would create.

    `may_create`: the command has an option for that, which the error names.
    """
    path = missing_file(url)
    if path is not None:
        remedy = "check the path; for a new one add --create, or run" if may_create else "check the path, or run"
        raise UnknownEndpointError(f"there is no SQLite file {str(path)!r}; {remedy} `delaystore setup`")


def missing_file(url: str) -> Path | None:
    """The SQLite file that `url` names and that does not exist; None: no such file is missing."""
    if url.partition(":")[0].partition("+")[0].lower() != "sqlite":
        return None
    from sqlalchemy import make_url

    from delaystore.sql.urls import sqlite_file

    path = sqlite_file(make_url(url))
    return None if path is None or path.exists() else path
