"""What is to be loaded, where to, and how."""

from collections.abc import Mapping

from delaystore.spark.conversion.places import absolute
from delaystore.spark.loading.files import DataFiles
from delaystore.spark.options import new_load_id, write_options


class LoadRequest:
    """A load. `options`: the format's, by name; `mapping`: the file's column of a message's column.

    `given`: the options, read; `load_id`: the load's id in the store's registry, one of its own where none is given.
    Raises ConfigurationError for options that cannot work.
    """

    def __init__(self, files: DataFiles, options: Mapping[str, str], mapping: Mapping[str, str]) -> None:
        self.files = files
        self.mapping = mapping
        self.given = write_options(options)
        self.load_id = self.given.load_id or new_load_id()
        # Spark's workers are in the folder in which Java was started
        folder = {} if self.given.rejects is None else {"rejects": absolute(self.given.rejects)}
        self._options = {**options, **folder}

    def options_to_write(self) -> dict[str, str]:
        """Those for Spark's writer."""
        others = {name: value for name, value in self._options.items() if name.lower() != "loadid"}
        return {**others, "loadId": self.load_id}

    def options_to_read(self) -> dict[str, str]:
        """Those for Spark's reader of the same endpoint."""
        given = self.given
        where = {"store": given.store, "endpoint": given.endpoint, "schema": given.schema, "table": given.table}
        return {name: value for name, value in where.items() if value is not None}
