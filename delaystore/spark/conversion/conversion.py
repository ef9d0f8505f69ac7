"""Batches of rows as people have them, to batches as a store keeps them."""

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.errors import LoadError
from delaystore.spark.conversion.encodings import Plain
from delaystore.spark.conversion.faults import Faults
from delaystore.spark.rejections import MAX_EXAMPLES, Reason, Rejections
from delaystore.spark.staged import STAGED

REASON: Final = "reason"
"""The last column of rejected rows."""
_MAX_BATCH_BYTES: Final = 2**31 - 1
"""What the offsets of Arrow's `binary` can count."""
_SHOWN: Final = 60
"""Characters of each value in an example."""
_LENIENT: Final = Plain(lenient=True)


class Part(Protocol):
    """What makes one column of STAGED."""

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """The column; what it holds at rows with faults does not matter."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A batch of the schema STAGED, and the rows that cannot be messages: counted, and as they came, with a reason."""

    staged: pa.RecordBatch
    rejections: Rejections
    rejected: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the columns of a DataFrame become those of STAGED, in its order. Made by `plan_conversion`; picklable.

    `unreadable`: the column that says why a row could not be read; None: there is none.
    """

    parts: tuple[Part, ...]
    unreadable: int | None = None

    def convert(self, batch: pa.RecordBatch) -> Converted:
        """`batch`, whose columns are those of the schema that was planned for.

        A valid row becomes what the SQL store writes for the same DelayedMessage. LoadError: the batch is too large.
        """
        if batch.nbytes > _MAX_BATCH_BYTES:
            raise LoadError(
                "a batch of rows holds more than 2 GB; set spark.sql.execution.arrow.maxRecordsPerBatch lower"
            )
        faults = Faults()
        if self.unreadable is not None:
            faults.add_reasons(batch.column(self.unreadable).cast(pa.string()))
        columns = [part.convert(batch, faults) for part in self.parts]
        staged = pa.RecordBatch.from_arrays(columns, schema=STAGED)
        reasons = faults.reasons()
        if reasons is None:
            return Converted(staged, Rejections(), None)
        rejected = batch.filter(reasons.is_valid()).append_column(REASON, reasons.drop_null())
        if self.unreadable is not None:
            rejected = rejected.remove_column(self.unreadable)
        return Converted(staged.filter(reasons.is_null()), _counted(rejected), rejected)


def _counted(rejected: pa.RecordBatch) -> Rejections:
    reasons = rejected.column(rejected.num_columns - 1)
    found = {}
    for entry in pc.value_counts(reasons).to_pylist():
        of_reason = pc.indices_nonzero(pc.equal(reasons, entry["values"])).slice(0, MAX_EXAMPLES)
        found[entry["values"]] = Reason(entry["counts"], _examples(rejected.take(of_reason)))
    return Rejections(found)


def _examples(rows: pa.RecordBatch) -> tuple[str, ...]:
    """JSON objects of the original columns, with long values cut."""
    names = rows.schema.names[:-1]
    columns = [_LENIENT.texts(rows.column(index))[0].to_pylist() for index in range(len(names))]
    return tuple(
        "{" + ",".join(f"{_LENIENT.quoted(name)}:{_cut(text)}" for name, text in zip(names, row, strict=True)) + "}"
        for row in zip(*columns, strict=True)
    )


def _cut(text: str | None) -> str:
    if text is None:
        return "null"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
