"""Batches of rows as people have them, to batches as a store keeps them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVarTuple

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.errors import LoadError
from delaystore.loading.arrow import STAGED
from delaystore.loading.conversion._faults import Faults
from delaystore.loading.conversion.carrying import TransportCheck

REASON: Final = "reason"
"""The last column of rejected rows."""
_MAX_BATCH_BYTES: Final = 2**31 - 1
"""What the offsets of Arrow's `binary` can count."""


MakeColumn = Callable[[pa.RecordBatch, Faults], pa.Array]
"""Makes one column of STAGED; its values in rows with faults do not matter."""


_Given = TypeVarTuple("_Given")


class Bound(Generic[*_Given]):
    """`function` with its first arguments; unlike functools.partial, equal to another of the same."""

    def __init__(self, function: Callable[[*_Given, pa.RecordBatch, Faults], pa.Array], *given: *_Given) -> None:
        self._function, self._given = function, given

    def __call__(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """What `function` returns for these."""
        return self._function(*self._given, batch, faults)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and vars(self) == vars(other)


@dataclass(frozen=True, slots=True)
class Converted:
    """What a batch became.

    `staged`: the messages, in the schema STAGED. `rejected`: the other rows as they came, and REASON as the last
    column; None: there are none.
    """

    staged: pa.RecordBatch
    rejected: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the columns of a DataFrame become those of STAGED. Made by `plan_conversion`; picklable.

    `columns`: what makes each column of STAGED, by its name. `unreadable`: the index of the column that says why a row
    could not be read; None: there is none. `transport`: rejects what it cannot carry; None: nobody asks.
    """

    columns: Mapping[str, MakeColumn]
    unreadable: int | None = None
    transport: TransportCheck | None = None

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
        made = [self.columns[name](batch, faults) for name in STAGED.names]
        staged = pa.RecordBatch.from_arrays(made, schema=STAGED)
        reasons = self._uncarried(staged, faults.reasons())
        if reasons is None:
            return Converted(staged, None)
        rejected = batch.filter(reasons.is_valid()).append_column(REASON, reasons.drop_null())
        if self.unreadable is not None:
            rejected = rejected.remove_column(self.unreadable)
        return Converted(staged.filter(reasons.is_null()), rejected)

    def _uncarried(self, staged: pa.RecordBatch, reasons: pa.Array | None) -> pa.Array | None:
        """`reasons`, and those of rows good so far that the transport cannot carry. None: all are good."""
        if self.transport is None:
            return reasons
        if reasons is None:
            found = self.transport.reasons(staged)
        else:
            good = reasons.is_null()
            found = pc.replace_with_mask(reasons, good, self.transport.reasons(staged.filter(good)))
        return found if found.null_count < len(found) else None
