"""Making the data source known to a Spark session."""

from pyspark.sql import SparkSession

from delaystore.spark._driver_service.client import DriverClient
from delaystore.spark._driver_service.service import driver_service_of
from delaystore.spark._source import DelaystoreDataSource
from delaystore.spark._worker_python import settle_worker_python

FILTERS = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses readers that take filters (the option pushFilters)."""


def register(spark: SparkSession) -> None:
    """Make the format "delaystore" known to `spark`; may be called again, in each of several sessions, and threads.

    It sets spark.sql.python.filterPushdown.enabled, and starts the driver service: a thread in this process that serves
    all sessions of the Spark application until that stops. It listens on 127.0.0.1, holds the snapshots that reads in
    several partitions share, and renews the leases of loads that are running.

    Workers run PYSPARK_PYTHON; without that, spark.pyspark.python, or with a local master this Python.

    A session of Spark Connect has its driver elsewhere: it has no driver service, and reads in one partition.
    Raises ConfigurationError if the workers' Python cannot run delaystore.
    """
    if _is_classic(spark):
        settle_worker_python(spark.sparkContext)
    client = driver_client(spark)

    class Registered(DelaystoreDataSource):
        """Carries the driver service's address to Spark's workers: a class made here is pickled with what it holds."""

        driver = client

    spark.conf.set(FILTERS, "true")
    _activate(spark)
    spark.dataSource.register(Registered)


def driver_client(spark: SparkSession) -> DriverClient | None:
    """Where to reach the driver service of this session's application, started if need be; None for Spark Connect."""
    return driver_service_of(spark).client if _is_classic(spark) else None


def _activate(spark: SparkSession) -> None:
    """Let this thread find the format: Spark looks in its active session, which a new thread or session is not."""
    if _is_classic(spark) and spark._jvm is not None:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def _is_classic(spark: SparkSession) -> bool:
    return isinstance(spark, SparkSession) and hasattr(spark, "_jsparkSession")
