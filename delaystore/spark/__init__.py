"""Bulk-load, stream and read delayed messages with PySpark.

`register` makes the format "delaystore" known (`_source`): `_writing` stages and promotes, `_reading` reads, and the
driver service holds what must outlive Spark's workers. `loading` and `session` are for the command `delaystore load`,
`pipeline` reads other systems' rows. Modules behind a `_` may be changed freely. Whatever is imported at the top of
`_source`, `_writing` and `_reading` is imported by each of Spark's Python workers, too.
"""

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
