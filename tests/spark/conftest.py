"""One Spark session for all tests, in surroundings that hide no mistake: its time zone is an odd one."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from delaystore.bulk.spark import register
from delaystore.bulk.spark._driver_service import stop_driver_service
from tests.spark.java import QUICK_JAVA

ROOT = Path(__file__).parents[2]
PRELOADED = Path(__file__).with_name("preloaded")
POSTGRESQL_JAR = Path("/usr/share/java/postgresql.jar")
ODD_TIME_ZONE = "Asia/Kathmandu"  # UTC+05:45


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads with delaystore registered; it is shared, so leave its settings as they are."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("Java is not installed, which Spark needs")
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LOCAL_DIRS", str(folder))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(PRELOADED), os.environ.get("PYTHONPATH", "")]))
        session = settings(SparkSession.builder.master("local[2]"), folder).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        yield session
        session.stop()
        stop_driver_service()


def settings(builder: SparkSession.Builder, folder: Path) -> SparkSession.Builder:
    """Small, quick, quiet, and at home in `folder`."""
    builder = builder.appName("delaystore tests")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -Dderby.system.home={folder} -Djava.io.tmpdir={folder}",
        "spark.driver.memory": "1g",
        "spark.jars": str(POSTGRESQL_JAR) if POSTGRESQL_JAR.exists() else "",
        "spark.sql.session.timeZone": ODD_TIME_ZONE,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    return builder
