"""Bulk-load, stream and read delayed messages with PySpark."""

from typing import TYPE_CHECKING, Any

from delaystore.spark.requirements import check_libraries

if TYPE_CHECKING:
    from delaystore.spark._registration import register
    from delaystore.spark._source import DelaystoreDataSource

__all__ = ["DelaystoreDataSource", "register"]
_HOMES = {
    "DelaystoreDataSource": "delaystore.spark._source",
    "register": "delaystore.spark._registration",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for. Raises MissingDependencyError without PySpark or pyarrow."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    check_libraries()
    return getattr(import_module(_HOMES[name]), name)
