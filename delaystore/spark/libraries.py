"""What the extra `spark` installs."""

from importlib import import_module
from typing import Final

from delaystore.errors import MissingDependencyError

_LIBRARIES: Final = ("pyspark", "pyarrow")


def check_libraries() -> None:
    """MissingDependencyError without PySpark or pyarrow."""
    for library in _LIBRARIES:
        try:
            import_module(library)
        except ModuleNotFoundError:
            raise MissingDependencyError(
                f'{library} is not installed, which Spark needs; pip install "delaystore[spark]"'
            ) from None
