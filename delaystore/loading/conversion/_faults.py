"""What is wrong with the rows of a batch."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Unfit(Exception):  # noqa: N818 - a finding about a value, caught where the value came from
    """A value that cannot be in a message. `reason` holds no value of the row, so that equal reasons can be counted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Faults:
    """Why rows are rejected, collected column by column; a row's first reason is the one that counts."""

    def __init__(self) -> None:
        self._found: list[pa.Array] = []

    def add(self, mask: pa.Array | None, reason: str) -> None:
        """The rows where `mask` is true are rejected; null is false, and so is None everywhere."""
        if mask is not None and mask.true_count:
            self._found.append(pc.if_else(mask, pa.scalar(reason), pa.scalar(None, pa.string())))

    def add_reasons(self, reasons: pa.Array) -> None:
        """The rows where `reasons` is not null are rejected for that."""
        if reasons.null_count < len(reasons):
            self._found.append(reasons)

    def reasons(self) -> pa.Array | None:
        """By row: its reason, null for a good one; None if all are good."""
        return pc.coalesce(*self._found) if self._found else None


def by_value(array: pa.Array, convert: Callable[[Any], Any], to: pa.DataType, faults: Faults) -> pa.Array:
    """`convert` of each value that is not null, called once per distinct one; where it raises Unfit, null."""
    encoded = array.dictionary_encode()
    values, reasons = each(encoded.dictionary.to_pylist(), convert)
    if any(reasons):
        faults.add_reasons(pa.array(reasons, pa.string()).take(encoded.indices))
    return pa.array(values, to).take(encoded.indices)


def each(values: Iterable[Any], convert: Callable[[Any], Any]) -> tuple[list[Any], list[str | None]]:
    """`convert` of each value that is not None, and why there is none: the reason where it raises Unfit, else None."""
    converted: list[Any] = []
    reasons: list[str | None] = []
    for value in values:
        try:
            converted.append(None if value is None else convert(value))
            reasons.append(None)
        except Unfit as unfit:
            converted.append(None)
            reasons.append(unfit.reason)
    return converted, reasons
