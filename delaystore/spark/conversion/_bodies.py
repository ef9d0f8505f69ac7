"""Bodies: given as bytes or text, or made of the columns that are not a message's."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.spark.conversion._faults import Faults
from delaystore.spark.conversion.encodings import Plain
from delaystore.spark.conversion.objects import braced, of_columns

_PLAIN: Final = Plain()


@dataclass(frozen=True, slots=True)
class GivenBodies:
    """The column body; text is taken as UTF-8."""

    index: int
    max_bytes: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Bytes, checked."""
        bodies = batch.column(self.index).cast(pa.binary())
        faults.add(bodies.is_null(), "body is null")
        _check_size(bodies, self.max_bytes, faults)
        return bodies


@dataclass(frozen=True, slots=True)
class JsonBodies:
    """A JSON object of columns, by index and name; null is null."""

    columns: tuple[tuple[int, str], ...]
    max_bytes: int

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Bytes, checked."""
        names = [name for _, name in self.columns]
        columns = [batch.column(index) for index, _ in self.columns]
        entries, unfit = of_columns(names, columns, _PLAIN, nulls=True)
        if unfit is not None:
            faults.add(unfit, "body would hold a value that no JSON can")
        bodies = braced(entries).cast(pa.binary())
        _check_size(bodies, self.max_bytes, faults)
        return bodies


def _check_size(bodies: pa.Array, limit: int, faults: Faults) -> None:
    faults.add(pc.greater(pc.binary_length(bodies), limit), f"body has more than {limit} bytes")
