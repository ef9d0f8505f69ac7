"""Plug-ins by URL scheme (entry points `delaystore.stores`, `delaystore.transports`), and the package's extras."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final

from delaystore.errors import ConfigurationError, MissingDependencyError, UnknownSchemeError

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "typer": "cli",
        "rich": "cli",
        "psycopg": "postgresql",
        "psycopg_binary": "postgresql",
        "pymysql": "mysql",
        "pika": "rabbitmq",
        "httpx": "rabbitmq",
        "msgspec": "rabbitmq",
        "greenlet": "asyncio",
        "asyncpg": "asyncpg",
        "aiosqlite": "aiosqlite",
        "asyncmy": "asyncmy",
        "aiomysql": "aiomysql",
        "pyarrow": "parquet",
        "python_calamine": "excel",
        "pyspark": "spark",
        "adbc_driver_manager": "spark",
        "adbc_driver_postgresql": "spark",
        "opentelemetry": "telemetry",
        "prometheus_client": "prometheus",
        "starlette": "web",
        "jinja2": "web",
        "uvicorn": "web",
        "sdnotify": "service",
        "tomli_w": "service",
        "celery": "celery",
        "dramatiq": "dramatiq",
        "taskiq": "taskiq",
        "taskiq_aio_pika": "taskiq",
        "django": "django",
        "apscheduler": "apscheduler",
        "pytest": "testing",
        "hypothesis": "testing",
        "matplotlib": "plot",
    }
)
"""The extra that brings a library, by the name under which it is imported."""


@contextmanager
def needed_for(what: str, extra: str | None = None) -> Iterator[None]:
    """Raise MissingDependencyError where the block imports a library of an extra that is not installed.

    `what`: who needs it, the subject of the sentence. `extra`: see `missing`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing(what, error, extra) from error


def missing(what: str, error: ModuleNotFoundError, extra: str | None = None) -> MissingDependencyError:
    """The error with the packages to install for `what`.

    `extra`: which one, where several bring the library; None: the table's. Raises `error` itself for a module of no
    extra: then something else is wrong.
    """
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        raise error
    return MissingDependencyError(
        f"{what} needs the library {library}, which is not installed; {installing(extra or EXTRAS[library])}"
    )


def installing(extra: str) -> str:
    """How to install an extra."""
    return f"run pip install '.[{extra}]' in a clone of delaystore"


def lazily(
    package: str, homes: Mapping[str, str], first: Callable[[str], object] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports public names at their first use, as they load slowly.

    `homes`: names, and the modules that define them. `first`: called with a name, before its module is imported.
    The first raises MissingDependencyError where an extra is not installed; the second lists all of `__all__`.
    """

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if first is not None:
            first(name)
        with needed_for(name):
            return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return getattribute, names


_ALIKE: Final = 0.82
"""From where on a scheme is taken for a misspelling: postgres is, mssql is not."""


def open_url(group: str, kind: str, url: str) -> Any:
    """Open a URL with the plug-in for its scheme.

    Args:
        group: The entry points among which the plug-in is looked up.
        kind: What errors call the opened object.
        url: The URL. The scheme `postgresql+psycopg` is looked up as `postgresql`.

    Returns:
        The plug-in's object for the URL.

    Raises:
        UnknownSchemeError: No plug-in is registered for the scheme.
        ConfigurationError: It is no URL, or the plug-in cannot be loaded.
        MissingDependencyError: The plug-in needs a library that is not installed.

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
    from difflib import get_close_matches  # only for this error

    meant = "".join(f"write {name}://; " for name in get_close_matches(scheme, known, n=1, cutoff=_ALIKE))
    return f"{meant}known schemes: {', '.join(known)}"


def _load(plugin: EntryPoint, kind: str) -> Any:
    try:
        opener = plugin.load()
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        advice = installing(EXTRAS[library]) if library in EXTRAS else f"install it, or fix the {_named(plugin)}"
        raise MissingDependencyError(
            f"the {kind} for {plugin.name!r} needs the library {error.name}, which is not installed; {advice}"
        ) from error
    except Exception as error:  # whatever the plug-in's module raises while it is imported
        raise ConfigurationError(
            f"the {kind} for {plugin.name!r} cannot be loaded: {type(error).__name__}: {error}; fix the "
            f"{_named(plugin)}"
        ) from error
    if not callable(opener):
        raise ConfigurationError(
            f"the {kind} for {plugin.name!r} is a {type(opener).__name__}, and no function that opens a URL; fix the "
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
