"""Writers and what they leave of a load that fails, without a session of Spark."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType

from delaystore.bulk.options import write_options
from delaystore.bulk.rejects import RejectFolder
from delaystore.bulk.spark._driver_client import DriverClient
from delaystore.bulk.spark._writing import BatchWriter, of_a_task
from delaystore.bulk.staging import _stores
from delaystore.errors import ConfigurationError, DuplicateMessageError, LoadLostError, RejectedRowsError
from delaystore.settings import TransactionMode
from delaystore.stores import InMemoryDelayedMessageStore
from tests.integration.loading import end_lease
from tests.unit.converting import batch, rows, schema

ROWS = rows(2, body=(BinaryType(), [b"good", None]))


def run(url: str, **options: str) -> BatchWriter:
    """A run of the load "one", as each process that runs it makes one."""
    given = {"store": url, "endpoint": "sales", "loadId": "one", **options}
    return BatchWriter(schema(ROWS), write_options(given), None)


class FourTasks(DriverClient):
    """Of a driver that is not asked."""

    def parallelism(self) -> int:
        return 4


def test_the_limit_of_a_rate_is_divided_by_the_tasks_of_a_time(sqlite_url: str) -> None:
    given = write_options({"store": sqlite_url, "endpoint": "sales", "maxRowsPerSecond": "10"})
    assert of_a_task(given, FourTasks(1, 1, b"")).max_rows_per_second == 2.5
    assert of_a_task(given, FourTasks(1, 1, b"")).endpoint == "sales"
    unlimited = write_options({"store": sqlite_url, "endpoint": "sales"})
    assert of_a_task(unlimited, None) == unlimited
    with pytest.raises(ConfigurationError, match="the option maxRowsPerSecond needs the driver service"):
        run(sqlite_url, maxRowsPerSecond="10")


def files(folder: Path) -> dict[str, str]:
    """Those of the endpoint."""
    (endpoint,) = folder.glob("sales_*")
    return {str(path.relative_to(endpoint)): path.read_text() for path in endpoint.rglob("*") if path.is_file()}


def test_a_run_that_was_taken_over_leaves_what_tasks_of_the_other_have_written(sqlite_url: str, tmp_path: Path) -> None:
    first = run(sqlite_url, rejects=str(tmp_path / "rejects"))
    lost = first.write(iter([batch(ROWS)]))
    end_lease(sqlite_url)
    second = run(sqlite_url, rejects=str(tmp_path / "rejects"))
    task = second.write(iter([batch(ROWS)]))
    with pytest.raises(LoadLostError):
        first.commit([lost])
    first.abort([lost])
    second.commit([task])
    ((name, line),) = files(tmp_path / "rejects").items()
    assert name == "one-00001.jsonl"
    assert json.loads(line)["message_id"] == "id-1"


def test_a_run_that_is_taken_over_as_it_ends_leaves_the_files_of_the_other(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = RejectFolder.keep

    def keep_slowly(folder: RejectFolder, names: Iterable[str | None]) -> None:
        keep(folder, names)
        end_lease(sqlite_url)
        run(sqlite_url, rejects=str(tmp_path))
        (kept,) = tmp_path.glob("sales_*/one-00001.jsonl")
        kept.write_text("by the second run")

    first = run(sqlite_url, rejects=str(tmp_path))
    task = first.write(iter([batch(ROWS)]))
    monkeypatch.setattr(RejectFolder, "keep", keep_slowly)
    with pytest.raises(LoadLostError, match="taken over"):
        first.commit([task])
    first.abort([task])
    assert files(tmp_path)["one-00001.jsonl"] == "by the second run"


def test_a_load_that_cannot_be_promoted_keeps_no_files(sqlite_url: str, tmp_path: Path) -> None:
    before = run(sqlite_url, loadId="before", rejects=str(tmp_path / "rejects"))
    before.commit([before.write(iter([batch(ROWS)]))])
    again = run(sqlite_url, rejects=str(tmp_path / "rejects"))
    task = again.write(iter([batch(ROWS)]))
    with pytest.raises(DuplicateMessageError):
        again.commit([task])
    again.abort([task])
    assert list(files(tmp_path / "rejects")) == ["before-00001.jsonl"]


def test_of_a_finished_load_tasks_count_all_rows_and_convert_none(sqlite_url: str) -> None:
    """So that other data are noticed; and Spark ends a Python worker whose input was not read to its end."""
    before = run(sqlite_url)
    before.commit([before.write(iter([batch(rows())]))])
    again = run(sqlite_url)
    many = iter([batch(ROWS)] * 1000)
    task = again.write(many)
    again.commit([task])
    assert list(many) == []
    assert task.again == 1000 * batch(ROWS).num_rows


def test_a_tasks_worker_imports_nothing_that_only_setting_up_or_dispatching_needs() -> None:
    """Each of Spark's planning, task and commit workers imports it anew."""
    modules = "delaystore.bulk.spark._source, delaystore.bulk.spark._writing"
    program = f"import sys, {modules}; print(*(name for name in ('alembic', 'pika', 'pandas') if name in sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == []


def test_of_a_load_with_rejected_rows_nothing_is_loaded(sqlite_url: str) -> None:
    writer = run(sqlite_url)
    task = writer.write(iter([batch(ROWS)]))
    with pytest.raises(RejectedRowsError, match="; nothing was loaded: fix these rows, or name a folder"):
        writer.commit([task])
    writer.abort([task])


def test_of_a_store_without_a_way_back_it_is_said_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryDelayedMessageStore()
    store.initialize("sales", TransactionMode.NONE)
    monkeypatch.setattr(_stores, "open_store", lambda url: store)
    writer = run("redis://localhost", onDuplicate="ignore")
    tasks = [writer.write(iter([batch(some)])) for some in (rows(), ROWS)]
    with pytest.raises(RejectedRowsError, match="; what was stored until then stays: fix these rows, or name"):
        writer.commit(tasks)
    assert store.count() == 1
