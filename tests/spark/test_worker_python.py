"""The Python of Spark's workers, where the PATH has another one than the driver's."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delaystore.bulk.spark import register
from delaystore.errors import ConfigurationError
from tests.integration.sql_stores import query
from tests.spark.conftest import ROOT
from tests.spark.java import QUICK_JAVA

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from delaystore.bulk.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
rows = spark.sql("SELECT 'a' AS message_id, 'q' AS destination, now() AS due_time, 'x' AS body")
rows.write.format("delaystore").options(store=sys.argv[1], endpoint="sales").mode("append").save()
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python3"


@pytest.mark.long
def test_a_program_whose_environment_is_not_activated(bare: Path, tmp_path: Path, sqlite_url: str) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")},
        "PATH": f"{bare.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
    }
    command = [sys.executable, "-c", PROGRAM, sqlite_url]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert query(sqlite_url, "SELECT message_id FROM sales_delayed") == [("a",)]


def test_a_python_that_cannot_run_delaystore_is_refused_at_once(
    spark: SparkSession, bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho 3 10\n")
    other.chmod(0o755)
    for program, says in ((bare, "it lacks delaystore, pyarrow"), (other, "it is Python 3.10"), ("none", "none")):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
        with pytest.raises(ConfigurationError, match="set PYSPARK_PYTHON to one that has delaystore") as raised:
            register(spark)
        assert says in str(raised.value)
        assert sys.executable in str(raised.value)
