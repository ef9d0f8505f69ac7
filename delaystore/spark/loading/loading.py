"""Loading files into a store."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from delaystore.errors import DelaystoreError, LoadError
from delaystore.spark.conversion.columns import UNREADABLE
from delaystore.spark.conversion.planning import plan_conversion
from delaystore.spark.errors import plain_error
from delaystore.spark.loading.causes import cause_of
from delaystore.spark.loading.due import bars_of, due_seconds, points_of
from delaystore.spark.loading.frames import read_files
from delaystore.spark.loading.mapping import check_columns
from delaystore.spark.loading.rejected import rejected_by
from delaystore.spark.loading.report import LoadReport
from delaystore.spark.loading.request import LoadRequest
from delaystore.spark.loading.running import Watcher, run_watched
from delaystore.spark.staging import LoadState, LoadStatus, list_loads, open_staging
from delaystore.spark.staging.plain import PlainStaging
from delaystore.stores.registry import open_store


def finished_before(request: LoadRequest) -> LoadReport | None:
    """The report of a load that an earlier run has finished; None: there is something to do. Needs no Spark.

    Raises StoreError for a store that cannot be reached, ConfigurationError for one that cannot be loaded.
    """
    open_store(request.given.store).close()  # an unknown kind of store, or a missing driver
    staging = open_staging(request.given, request.given.lease_seconds)
    status = None if isinstance(staging, PlainStaging) else _status(request)
    if status is None or status.state is not LoadState.FINISHED:
        return None
    return LoadReport(
        load_id=request.given.load_id,
        stored=status.stored or 0,
        skipped=status.skipped,
        finished_before=status.finished_at,
    )


def load(spark: SparkSession, request: LoadRequest, watcher: Watcher) -> LoadReport:
    """Load the files; all of them or nothing. `spark`: the format is registered there.

    Raises ConfigurationError, RejectedRowsError, DuplicateMessageError and the other kin of LoadError and StoreError.
    """
    began, clock = datetime.now(UTC), time.monotonic()
    with plain_errors():
        frame = checked_frame(spark, request, began)
        seen, observed = _observed(frame, request, began)
        writer = observed.write.format("delaystore").options(**request.options_to_write()).mode("append")
        run_watched(spark, writer.save, watcher)
        seconds = time.monotonic() - clock
        found = seen.get
        rejections = rejected_by(request.load_id, request.given.rejects)
    staging = open_staging(request.given, request.given.lease_seconds)
    status = None if isinstance(staging, PlainStaging) else _status(request)
    return LoadReport(
        load_id=request.given.load_id,
        stored=found["rows"] - rejections.count if status is None else status.stored or 0,
        skipped=None if status is None else status.skipped,
        rejections=rejections,
        seconds=seconds,
        guarantee=PlainStaging.guarantee if isinstance(staging, PlainStaging) else None,
        due=tuple(bars_of(found.get("due"))),
    )


def checked_frame(spark: SparkSession, request: LoadRequest, began: datetime) -> DataFrame:
    """The files' rows; ConfigurationError where none of them could be a message."""
    given = request.given
    frame = read_files(spark, request.files, request.mapping)
    check_columns(
        [name for name in frame.columns if name != UNREADABLE],
        destination=given.destination,
        load_id=given.load_id,
        key_columns=given.key_columns,
    )
    plan_conversion(frame.schema, given, load_id=given.load_id, began=began)
    return frame


@contextmanager
def plain_errors() -> Iterator[None]:
    """What Spark makes of errors becomes one of ours, of one line."""
    try:
        yield
    except DelaystoreError:
        raise
    except Exception as error:
        raise plain_error(error) or LoadError(f"Spark failed: {cause_of(error)}") from None


def _observed(frame: DataFrame, request: LoadRequest, began: datetime) -> tuple[Observation, DataFrame]:
    """The frame, whose rows are counted, and their due times noted, as they are written."""
    observation = Observation()
    due = due_seconds(frame.schema, began, request.given.time_zone)
    points = [] if due is None else [points_of(due).alias("due")]
    return observation, frame.observe(observation, sf.count(sf.lit(1)).alias("rows"), *points)


def _status(request: LoadRequest) -> LoadStatus | None:
    return next((load for load in list_loads(request.given) if load.load_id == request.load_id), None)
