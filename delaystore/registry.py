"""Plug-ins found by URL scheme, through entry points."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from delaystore.errors import ConfigurationError, MissingDependencyError, UnknownSchemeError
from delaystore.extras import EXTRAS, installing

_ALIKE: Final = 0.82
"""From where on a scheme is taken for a misspelling: postgres is, mssql is not."""


def open_url(group: str, kind: str, url: str) -> Any:
    """Open `url` with the plug-in for its scheme. `group`: of the entry points. `kind`: what errors call the thing.

    The scheme `postgresql+psycopg` is looked up as `postgresql`. Raises UnknownSchemeError, ConfigurationError for
    text that is no URL or a plug-in that cannot be loaded, MissingDependencyError when it needs a library that is not
    installed.
    """
    scheme, mark, _ = url.partition(":")
    if not mark or not scheme:
        raise ConfigurationError(
            f"{_redacted(url)} is not a {kind} URL; it must start with a scheme, as in sqlite:///app.db"
        )
    scheme = scheme.partition("+")[0].lower()
    plugins = {entry.name: entry for entry in entry_points(group=group)}
    if scheme not in plugins:
        advice = what_to_write(scheme, sorted(plugins))
        raise UnknownSchemeError(f"no {kind} is registered for the URL scheme {scheme!r}; {advice}")
    return _load(plugins[scheme], kind)(url)


def what_to_write(scheme: str, known: Sequence[str]) -> str:
    """The remedy for an unknown scheme: the known one that it resembles, if any, and all of them."""
    meant = "".join(f"write {name}://; " for name in get_close_matches(scheme, known, n=1, cutoff=_ALIKE))
    return f"{meant}known schemes: {', '.join(known)}"


def _load(plugin: EntryPoint, kind: str) -> Any:
    try:
        opener = plugin.load()
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        advice = installing(EXTRAS[library]) if library in EXTRAS else f"install it, or mend the {_named(plugin)}"
        raise MissingDependencyError(
            f"the {kind} for {plugin.name!r} needs the library {error.name}, which is not installed; {advice}"
        ) from error
    except Exception as error:  # whatever somebody's module raises while it is imported
        raise ConfigurationError(
            f"the {kind} for {plugin.name!r} cannot be loaded: {type(error).__name__}: {error}; mend the "
            f"{_named(plugin)}"
        ) from error
    if not callable(opener):
        raise ConfigurationError(
            f"the {kind} for {plugin.name!r} is a {type(opener).__name__}, and no function that opens a URL; mend the "
            f"{_named(plugin)}"
        )
    return opener


def _named(plugin: EntryPoint) -> str:
    """The entry point as its package writes it, and the package."""
    package = "" if plugin.dist is None else f" of the package {plugin.dist.name}"
    return f'entry point {plugin.name} = "{plugin.value}"{package}'


def _redacted(url: str) -> str:
    """The text of a broken URL, unless it might hold a password."""
    return repr(url) if len(url) < 40 and "@" not in url else "the given text"
