"""Bulk-load, stream and read delayed messages with PySpark."""

from typing import TYPE_CHECKING, Any

from delaystore.errors import MissingDependencyError

if TYPE_CHECKING:
    from delaystore.spark.registration import register
    from delaystore.spark.source import DelaystoreDataSource

__all__ = ["DelaystoreDataSource", "register"]
_HOMES = {
    "DelaystoreDataSource": "delaystore.spark.source",
    "register": "delaystore.spark.registration",
}
_LIBRARIES = ("pyspark", "pyarrow")


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for. Raises MissingDependencyError without PySpark or pyarrow."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    for library in _LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError:
            raise MissingDependencyError(
                f'{library} is not installed, which Spark needs; pip install "delaystore[spark]"'
            ) from None
    return getattr(import_module(_HOMES[name]), name)
