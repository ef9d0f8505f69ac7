"""A data source whose tasks say what the garbage collector of their worker leaves out."""

import gc
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override


class Frozen(DataSource):
    """Each task writes a file named after its process into the folder `folder`."""

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(Path(self.options["folder"]))


class _Writer(DataSourceArrowWriter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        deque(iterator, maxlen=0)  # a worker whose input is not read is ended
        (self._folder / str(os.getpid())).write_text(str(gc.get_freeze_count()))
        return WriterCommitMessage()


def frozen_objects(spark: SparkSession, folder: Path) -> list[int]:
    """How many objects each of the workers that write has left out of its collections."""
    spark.dataSource.register(Frozen)
    spark.range(0, 20, 1, 20).write.format("Frozen").option("folder", str(folder)).mode("append").save()
    return [int(path.read_text()) for path in folder.iterdir()]
