"""The data source that Spark knows as "delaystore"."""

from collections.abc import Mapping
from typing import ClassVar, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType
from typing_extensions import override

from delaystore.bulk.options import read_options, write_options
from delaystore.bulk.spark._driver_client import DriverClient
from delaystore.errors import ConfigurationError

FORMAT: Final = "delaystore"
OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options of a stream that are Spark's own, and that it hands on."""
_OF_A_TABLE: Final = "provider"
"""What Spark adds to the options of a table that it makes."""


class DelaystoreDataSource(DataSource):
    """Reads, writes and streams messages; `delaystore.bulk.spark.register(spark)` makes it known.

    Registered by hand, without a driver service, it writes as well, and reads in one partition.
    """

    driver: ClassVar[DriverClient | None] = None
    """Where to reach the driver service; None: there is none."""

    @classmethod
    @override
    def name(cls) -> str:
        return FORMAT

    @override
    def schema(self) -> StructType:
        """The columns of a message; raises ConfigurationError for options that cannot work, as early as `load()`."""
        from delaystore.bulk.spark._reading import SCHEMA
        from delaystore.bulk.spark._tables import open_readable

        _check_no_table(self.options)
        open_readable(read_options(self.options))
        return SCHEMA

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of all columns, or of the columns in the user's own schema."""
        from delaystore.bulk.spark._reading import DelaystoreReader, FilteringReader

        _check_no_table(self.options)
        options = read_options(self.options)
        kind = FilteringReader if options.push_filters else DelaystoreReader
        return kind(schema, options, self.driver)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of one load; raises ConfigurationError for mode "overwrite"."""
        from delaystore.bulk.spark._writing import BatchWriter

        _only_append(overwrite)
        _check_no_table(self.options)
        options = write_options(self.options)
        if self.driver is not None and self.driver.makes_table():
            raise ConfigurationError(_NO_TABLES)
        return BatchWriter(schema, options, self.driver)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a stream's batches; raises ConfigurationError for output mode "complete"."""
        from delaystore.bulk.spark._writing import StreamWriter

        _only_append(overwrite)
        given = {name: value for name, value in self.options.items() if name.lower() not in OF_SPARK}
        return StreamWriter(schema, write_options(given), self.driver)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        raise ConfigurationError(
            'messages can only be added, not overwritten; use .mode("append"), and onDuplicate=replace for '
            "messages that are waiting"
        )


_NO_TABLES: Final = (
    "a table of the format delaystore cannot be read, for Spark hands a table's options to no Python data source; "
    'write with .mode("append").save(), and read by CREATE TEMPORARY VIEW name USING delaystore '
    "OPTIONS (store '...', endpoint '...')"
)


def _check_no_table(options: Mapping[str, str]) -> None:
    """ConfigurationError for a table that is being made, or used: of that one, no options come (seen with Spark 4.3).

    A user's call without any option looks the same.
    """
    if _OF_A_TABLE in options:
        raise ConfigurationError(_NO_TABLES)
    if not options:
        raise ConfigurationError(
            'the options store and endpoint are missing; add .option("store", ...) and .option("endpoint", ...). '
            f"If this is a table: {_NO_TABLES}"
        )
