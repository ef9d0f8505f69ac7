"""SQLite files, which opening a store would create."""

from pathlib import Path

from delaystore.errors import ConfigurationError


def require_file(url: str) -> None:
    """ConfigurationError where `url` names a SQLite file that does not exist, and which opening would create."""
    path = _file_of(url)
    if path is not None and not path.exists():
        raise ConfigurationError(f"there is no SQLite file {str(path)!r}; check the path, or run `delaystore setup`")


def file_exists(url: str) -> bool:
    """False where `url` names a SQLite file that does not exist."""
    path = _file_of(url)
    return path is None or path.exists()


def _file_of(url: str) -> Path | None:
    if url.partition(":")[0].partition("+")[0].lower() != "sqlite":
        return None
    from sqlalchemy import make_url

    from delaystore.sql.engine import sqlite_file

    return sqlite_file(make_url(url))
