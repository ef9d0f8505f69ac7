"""Making the data source known to a Spark session."""

from pyspark.sql import SparkSession

from delaystore.spark.keeping.client import KeeperClient
from delaystore.spark.keeping.keeper import keeper_of
from delaystore.spark.source import DelaystoreDataSource

FILTERS = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses readers that take filters (the option pushFilters)."""


def register(spark: SparkSession) -> None:
    """Make the format "delaystore" known to `spark`; may be called again, in each of several sessions, and threads.

    It sets spark.sql.python.filterPushdown.enabled, and starts a thread in this process (the keeper) that serves all
    sessions of the Spark application until that stops. The keeper listens on 127.0.0.1; it holds the snapshots that
    reads in several partitions share, and renews the leases of loads that are running.

    A session of Spark Connect has its driver elsewhere: there is no keeper then, and reads are of one partition.
    """
    client = _keeper(spark)

    class Registered(DelaystoreDataSource):
        """Carries the keeper's address to Spark's workers: a class made here is pickled with what it holds."""

        keeper = client

    spark.conf.set(FILTERS, "true")
    _activate(spark)
    spark.dataSource.register(Registered)


def registered_keeper(spark: SparkSession) -> KeeperClient | None:
    """Where to reach the keeper of this session's application, started if need be; None for Spark Connect."""
    return _keeper(spark)


def _activate(spark: SparkSession) -> None:
    """Let this thread find the format: Spark looks in its active session, which a new thread or session is not."""
    if _is_classic(spark) and spark._jvm is not None:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def _keeper(spark: SparkSession) -> KeeperClient | None:
    return keeper_of(spark).client if _is_classic(spark) else None


def _is_classic(spark: SparkSession) -> bool:
    return isinstance(spark, SparkSession) and hasattr(spark, "_jsparkSession")
