"""Extras of this package: which library belongs to which; and public names that are imported at their first use."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from delaystore.errors import MissingDependencyError

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
    """The error that says what to install for `what`.

    `extra`: which one, where several bring the library; None: the table's. Raises `error` itself for what belongs to
    no extra: then something else is wrong.
    """
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        raise error
    return MissingDependencyError(
        f"{what} needs the library {library}, which is not installed; {installing(extra or EXTRAS[library])}"
    )


def installing(extra: str) -> str:
    """What to do to have an extra."""
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
