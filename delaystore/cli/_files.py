"""SQLite files, which opening a store would create."""

from pathlib import Path

from delaystore.errors import ConfigurationError


def require_file(url: str) -> None:
    """ConfigurationError where `url` names a SQLite file that does not exist, and which opening would create."""
    path = missing_file(url)
    if path is not None:
        raise ConfigurationError(f"there is no SQLite file {str(path)!r}; check the path, or run `delaystore setup`")


def missing_file(url: str) -> Path | None:
    """The SQLite file that `url` names and that does not exist; None: no such file is missing."""
    if url.partition(":")[0].partition("+")[0].lower() != "sqlite":
        return None
    from sqlalchemy import make_url

    from delaystore.sql.urls import sqlite_file

    path = sqlite_file(make_url(url))
    return None if path is None or path.exists() else path
