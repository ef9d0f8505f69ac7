"""Files into a store, by Spark."""

import time

from pyspark.sql import SparkSession

from delaystore.loading.request import LoadReport, LoadRequest, report_of
from delaystore.spark._errors import plain_errors
from delaystore.spark.loading._frames import limited_batches, read_files
from delaystore.spark.loading.running import Watcher, run_watched


def load(spark: SparkSession, request: LoadRequest, watcher: Watcher) -> LoadReport:
    """Load the files; all of them or nothing. `spark`: the format is registered there.

    Raises ConfigurationError, RejectedRowsError, DuplicateMessageError and the other kin of LoadError and StoreError.
    """
    clock = time.monotonic()
    with plain_errors(), limited_batches(spark, request.files):
        run_watched(spark, lambda: _write(spark, request), watcher)
    return report_of(request, time.monotonic() - clock)


def _write(spark: SparkSession, request: LoadRequest) -> None:
    frame = read_files(spark, request.files, request.mapping)
    frame.write.format("delaystore").options(**request.options_to_write()).mode("append").save()
