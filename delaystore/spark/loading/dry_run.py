"""What a load would do: everything is converted and checked, and nothing is written."""

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from delaystore.errors import StoreSetupError
from delaystore.loading.conversion import REASON, Conversion, plan_conversion
from delaystore.loading.rejects import Reason, Rejects, count_rejects
from delaystore.loading.request import DryRun, LoadRequest
from delaystore.spark._dataframes import arrow_column, column_of
from delaystore.spark._errors import plain_error, plain_errors
from delaystore.spark._schemas import fields_of
from delaystore.spark.loading._frames import all_text, limited_batches, read_files
from delaystore.spark.loading.running import Watcher, run_watched
from delaystore.stores import open_store
from delaystore.stores.abc import ManagedDelayedMessageStore

_CHECKED: Final = all_text(["message_id", "reason", "example"])


def dry_run(spark: SparkSession, request: LoadRequest, watcher: Watcher, *, stored: bool = True) -> DryRun:
    """What `load` would do. `stored`: whether to look for duplicates in the store, too. Raises as `load`."""
    clock = time.monotonic()

    def run() -> DryRun:
        frame = read_files(spark, request.files, request.mapping)
        conversion = plan_conversion(fields_of(frame.schema), request.given, datetime.now(UTC))
        checked = _checked(frame, conversion).persist()
        try:
            return _counted(spark, request, checked, clock, stored=stored)
        finally:
            checked.unpersist()

    with plain_errors(), limited_batches(spark, request.files):
        return run_watched(spark, run, watcher)


def _counted(spark: SparkSession, request: LoadRequest, checked: DataFrame, clock: float, *, stored: bool) -> DryRun:
    good = checked.where("reason is null")
    several = good.groupBy("message_id").count().where("count > 1")
    twice = several.agg(sf.sum(sf.col("count") - 1).alias("count"), _some("message_id")).first()
    waiting, waits = _waiting(spark, request, good) if stored else (0, ())
    return DryRun(
        load_id=request.given.load_id,
        messages=good.count(),
        rejects=_rejects(checked),
        twice=twice["count"] or 0 if twice else 0,
        waiting=waiting,
        examples=tuple(dict.fromkeys([*(twice["some"] if twice else ()), *waits])),
        on_duplicate=request.given.on_duplicate,
        stops_at_rejects=request.given.rejects is None,
        seconds=time.monotonic() - clock,
    )


def _checked(frame: DataFrame, conversion: Conversion) -> DataFrame:
    """A row of _CHECKED for each row, though in another order."""

    def check(rows: pa.Array) -> pa.Array:
        converted = conversion.convert(pa.RecordBatch.from_struct_array(rows))
        bad = 0 if converted.rejected is None else converted.rejected.num_rows
        reasons = [] if converted.rejected is None else converted.rejected.column(REASON).to_pylist()
        left = {text: list(reason.examples) for text, reason in count_rejects(converted.rejected).reasons.items()}
        examples = [left[text].pop(0) if left[text] else None for text in reasons]
        good = converted.staged.num_rows
        columns = [
            pa.concat_arrays([converted.staged.column("message_id"), pa.nulls(bad, pa.string())]),
            pa.array([*(None for _ in range(good)), *reasons], pa.string()),
            pa.array([*(None for _ in range(good)), *examples], pa.string()),
        ]
        return pa.StructArray.from_arrays(columns, names=_CHECKED.names)

    every = sf.struct(*(column_of(frame, name) for name in frame.columns))
    return frame.select(arrow_column(check, every, _CHECKED).alias("row")).select("row.*")


def _rejects(checked: DataFrame) -> Rejects:
    bad = checked.where("reason is not null").groupBy("reason")
    rows = bad.agg(sf.count(sf.lit(1)).alias("count"), _some("example")).collect()
    return Rejects({row["reason"]: Reason(row["count"], tuple(row["some"])) for row in rows})


def _waiting(spark: SparkSession, request: LoadRequest, good: DataFrame) -> tuple[int | None, Sequence[str]]:
    """How many ids wait in the store already, and some of them; None: the store cannot list what waits."""
    with closing(open_store(request.given.store)) as store:
        if not isinstance(store, ManagedDelayedMessageStore):
            return None, ()
    try:
        waiting = spark.read.format("delaystore").options(**request.options_to_read()).load().select("message_id")
        both = good.select("message_id").distinct().join(waiting, "message_id", "left_semi")
        found = both.agg(sf.count(sf.lit(1)).alias("count"), _some("message_id")).first()
    except Exception as error:
        if isinstance(plain_error(error), StoreSetupError):  # it has no tables yet
            return 0, ()
        raise
    assert found is not None
    return found["count"], found["some"]


def _some(column: str) -> Any:
    return sf.array_compact(sf.array(sf.min(column), sf.max(column))).alias("some")
