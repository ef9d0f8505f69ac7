"""Bulk-load, stream and read delayed messages with PySpark."""

from typing import TYPE_CHECKING

from delaystore.extras import lazily
from delaystore.spark.requirements import check_libraries

if TYPE_CHECKING:
    from delaystore.spark._driver_service import register
    from delaystore.spark._source import DelaystoreDataSource

__all__ = ["DelaystoreDataSource", "register"]
__getattr__, __dir__ = lazily(
    __name__,
    {"DelaystoreDataSource": "delaystore.spark._source", "register": "delaystore.spark._driver_service"},
    lambda _name: check_libraries(),
)
