"""SQLite files, which opening would create."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from delaystore.errors import ConfigurationError


def require_file(url: str) -> None:
    """ConfigurationError where `url` names a SQLite file that does not exist; looking shall not create it."""
    if url.partition(":")[0].partition("+")[0].lower() != "sqlite":
        return
    from sqlalchemy import make_url

    database = make_url(url).database or ""
    path = Path(unquote(urlsplit(database).path) if database.startswith("file:") else database)
    if not path.exists():
        raise ConfigurationError(f"there is no SQLite file {str(path)!r}; check the path, or run `delaystore setup`")
