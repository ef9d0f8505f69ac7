"""Spark: the data source `delaystore` for bulk loads, streams and reading; loads of files; pipelines.

May be changed freely: everything but the options and the columns that DataFrames show.
May import: `bulk`, and the packages that `bulk` may import.
"""

from typing import TYPE_CHECKING

from delaystore.bulk.spark.requirements import check_libraries
from delaystore.registry import lazily

if TYPE_CHECKING:
    from delaystore.bulk.spark._driver_service import register
    from delaystore.bulk.spark._source import DelaystoreDataSource

__all__ = ["DelaystoreDataSource", "register"]
__getattr__, __dir__ = lazily(
    __name__,
    {"DelaystoreDataSource": "delaystore.bulk.spark._source", "register": "delaystore.bulk.spark._driver_service"},
    lambda _name: check_libraries(),
)
