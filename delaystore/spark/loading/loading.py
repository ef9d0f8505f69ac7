"""Loading files into a store."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from delaystore.errors import DelaystoreError, LoadError
from delaystore.spark.conversion.columns import UNREADABLE
from delaystore.spark.conversion.conversion import Conversion
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
from delaystore.spark.staging import LoadState, Staging, load_status, open_staging
from delaystore.stores.registry import open_store


def finished_before(request: LoadRequest) -> LoadReport | None:
    """The report of a load that an earlier run has finished; None: there is something to do. Needs no Spark.

    Raises StoreError for a store that cannot be reached, ConfigurationError for one that cannot be loaded.
    """
    open_store(request.given.store).close()  # an unknown kind of store, or a missing driver
    _staging(request)
    status = load_status(request.given, request.load_id)
    if status is None or status.state is not LoadState.FINISHED:
        return None
    return LoadReport(
        load_id=request.given.load_id,
        stored=status.stored or 0,
        skipped=status.skipped,
        finished_before=status.finished_at,
    )


def finished_meanwhile(request: LoadRequest) -> LoadReport | None:
    """The report of a load that was asked to stop when it could no longer be stopped; None: it is not finished.

    Raises as `finished_before`, and LoadError where what was rejected cannot be read.
    """
    report = finished_before(request)
    if report is None:
        return None
    return replace(report, finished_before=None, rejections=rejected_by(request.load_id, request.given))


def left_by_failure(request: LoadRequest) -> str:
    """What is true of the load if it has failed, or was stopped: the end of a sentence."""
    return _staging(request).after_failure


def load(spark: SparkSession, request: LoadRequest, watcher: Watcher) -> LoadReport:
    """Load the files; all of them or nothing. `spark`: the format is registered there.

    Raises ConfigurationError, RejectedRowsError, DuplicateMessageError and the other kin of LoadError and StoreError.
    """
    began, clock = datetime.now(UTC), time.monotonic()
    with plain_errors():
        found = run_watched(spark, lambda: _written(spark, request, began), watcher).get
        seconds = time.monotonic() - clock
        rejections = rejected_by(request.load_id, request.given)
    status = load_status(request.given, request.load_id)
    return LoadReport(
        load_id=request.given.load_id,
        stored=None if status is None else status.stored or 0,
        skipped=None if status is None else status.skipped,
        rejections=rejections,
        seconds=seconds,
        guarantee=_staging(request).guarantee if status is None else None,
        due=tuple(bars_of(found.get("due"))),
    )


def checked_frame(spark: SparkSession, request: LoadRequest, began: datetime) -> tuple[DataFrame, Conversion]:
    """The files' rows, and how they become messages; ConfigurationError where none of them could."""
    given = request.given
    frame = read_files(spark, request.files, request.mapping)
    check_columns(
        [name for name in frame.columns if name != UNREADABLE],
        destination=given.destination,
        load_id=given.load_id,
        key_columns=given.key_columns,
    )
    return frame, plan_conversion(frame.schema, given, load_id=given.load_id, began=began)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What Spark makes of errors becomes one of ours, of one line."""
    try:
        yield
    except DelaystoreError:
        raise
    except Exception as error:
        raise plain_error(error) or LoadError(f"Spark failed: {cause_of(error)}") from None


def _written(spark: SparkSession, request: LoadRequest, began: datetime) -> Observation:
    """Write the files' rows; when they were due is observed meanwhile."""
    frame, _ = checked_frame(spark, request, began)
    seen, observed = _observed(frame, request, began)
    observed.write.format("delaystore").options(**request.options_to_write()).mode("append").save()
    return seen


def _observed(frame: DataFrame, request: LoadRequest, began: datetime) -> tuple[Observation, DataFrame]:
    """The frame, of whose rows the due times are noted as they are written."""
    observation = Observation()
    due = due_seconds(frame.schema, began, request.given.time_zone)
    points = sf.lit(None) if due is None else points_of(due)
    return observation, frame.observe(observation, points.alias("due"))


def _staging(request: LoadRequest) -> Staging:
    return open_staging(request.given, request.given.lease_seconds)
