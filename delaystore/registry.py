"""Plug-ins found by URL scheme, through entry points."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from delaystore.errors import ConfigurationError, MissingDependencyError, UnknownSchemeError


def open_url(group: str, kind: str, url: str) -> Any:
    """Open `url` with the plug-in for its scheme. `group`: of the entry points. `kind`: what errors call the thing.

    The scheme `postgresql+psycopg` is looked up as `postgresql`. Raises UnknownSchemeError, ConfigurationError for
    text that is no URL, MissingDependencyError when the plug-in needs a library that is not installed.
    """
    scheme, mark, _ = url.partition(":")
    if not mark or not scheme:
        raise ConfigurationError(
            f"{_redacted(url)} is not a {kind} URL; it must start with a scheme, as in sqlite:///app.db"
        )
    scheme = scheme.partition("+")[0].lower()
    plugins = {entry.name: entry for entry in entry_points(group=group)}
    if scheme not in plugins:
        known = ", ".join(sorted(plugins))
        raise UnknownSchemeError(f"no {kind} is registered for the URL scheme {scheme!r}; known schemes: {known}")
    return _load(plugins[scheme], kind)(url)


def _load(plugin: EntryPoint, kind: str) -> Any:
    try:
        return plugin.load()
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the {kind} for {plugin.name!r} needs the library {error.name}, which is not installed"
        ) from error


def _redacted(url: str) -> str:
    """The text of a broken URL, unless it might hold a password."""
    return repr(url) if len(url) < 40 and "@" not in url else "the given text"
