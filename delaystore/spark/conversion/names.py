"""Where message ids and destinations come from."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.spark.conversion.faults import Faults
from delaystore.spark.conversion.texts import check_destinations, check_message_ids, readable


@dataclass(frozen=True, slots=True)
class GivenIds:
    """The column message_id."""

    index: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text, checked."""
        ids = readable(batch.column(self.index), "message_id", faults)
        check_message_ids(ids, faults)
        return ids


@dataclass(frozen=True, slots=True)
class Destinations:
    """The column destination, if there is one, and the option for rows that have none."""

    index: int | None
    default: str | None

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text, checked; the option was, when it was read."""
        if self.index is None:
            return pa.repeat(self.default, batch.num_rows)
        given = batch.column(self.index)
        names = readable(given, "destination", faults)
        if self.default is not None:
            names = pc.if_else(given.is_null(), self.default, names)
        check_destinations(names, faults)
        return names
