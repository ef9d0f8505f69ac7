"""Headers from a map, a struct, JSON, or columns of their own, as the store's codec writes them.

A null value is kept where somebody wrote it: in a map or in JSON. A struct, and so a row of columns, has all of its
fields in every row: there null means that the header is absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.errors import InvalidMessageError
from delaystore.message import check_headers
from delaystore.spark.conversion._faults import Faults, Unfit, by_value
from delaystore.spark.conversion._texts import readable
from delaystore.spark.conversion.encodings import Tagged
from delaystore.spark.conversion.objects import any_of_row, braced, joined, of_columns, of_maps
from delaystore.sql.codec import decode_mapping, encode_mapping

_TAGGED: Final = Tagged()


class Entries(Protocol):
    """Where headers (or properties) come from."""

    def entries(self, batch: pa.RecordBatch, name: str, faults: Faults) -> pa.Array:
        """As in `objects`. `name`: what faults call the whole."""


@dataclass(frozen=True, slots=True)
class MapEntries:
    """A map column. `reserved`: names that it may not hold."""

    index: int
    reserved: tuple[str, ...] = ()

    def entries(self, batch: pa.RecordBatch, name: str, faults: Faults) -> pa.Array:
        """With null values."""
        column = batch.column(self.index)
        entries, unfit = of_maps(column, _TAGGED)
        _add_unfit(unfit, name, faults)
        if self.reserved:
            taken = pc.is_in(column.keys, pa.array(self.reserved, column.keys.type))
            if taken.true_count:
                faults.add(any_of_row(column, taken), f"{name} and a column hold the same name")
        return entries


@dataclass(frozen=True, slots=True)
class StructEntries:
    """A struct column."""

    index: int

    def entries(self, batch: pa.RecordBatch, name: str, faults: Faults) -> pa.Array:
        """Without null values."""
        column = batch.column(self.index)
        names = [field.name for field in column.type]
        if not names:
            return pa.nulls(len(column), pa.string())
        entries, unfit = of_columns(names, column.flatten(), _TAGGED, nulls=False)
        _add_unfit(unfit, name, faults)
        return entries


@dataclass(frozen=True, slots=True)
class ColumnEntries:
    """Columns of their own, by index and name."""

    columns: tuple[tuple[int, str], ...]

    def entries(self, batch: pa.RecordBatch, name: str, faults: Faults) -> pa.Array:
        """Without null values."""
        names = [name for _, name in self.columns]
        columns = [batch.column(index) for index, _ in self.columns]
        entries, unfit = of_columns(names, columns, _TAGGED, nulls=False)
        _add_unfit(unfit, name, faults)
        return entries


@dataclass(frozen=True, slots=True)
class JsonEntries:
    """A column of JSON objects, in which the tags of the store's codec mean what they mean there."""

    index: int
    reserved: tuple[str, ...] = ()

    def entries(self, batch: pa.RecordBatch, name: str, faults: Faults) -> pa.Array:
        """With null values."""

        def entry(text: str) -> str | None:
            encoded = encode_mapping(self._checked(text, name))
            return None if encoded is None else f",{encoded[1:-1]}"

        return by_value(readable(batch.column(self.index), name, faults), entry, pa.string(), faults)

    def _checked(self, text: str, name: str) -> Mapping[str, Any]:
        mapping = decoded(text, name)
        try:
            check_headers(mapping)
        except InvalidMessageError:
            raise unfit_value(name) from None
        if not mapping.keys().isdisjoint(self.reserved):
            raise Unfit(f"{name} and a column hold the same name")
        return mapping


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers from all of their sources. Without sources, no message has headers."""

    sources: tuple[Entries, ...]

    def convert(self, batch: pa.RecordBatch, faults: Faults) -> pa.Array:
        """Text; null for none."""
        if not self.sources:
            return pa.nulls(batch.num_rows, pa.string())
        return braced(joined([source.entries(batch, "headers", faults) for source in self.sources]))


def decoded(text: str, name: str) -> Mapping[str, Any]:
    """The JSON object in `text`; Unfit, calling it `name`, for what is none."""
    try:
        return decode_mapping(text)
    except RecursionError:
        raise Unfit(f"{name} is nested too deep") from None
    except ValueError:
        raise Unfit(f"{name} is not a JSON object, or holds a tag (a name with $) that does not fit") from None


def unfit_value(name: str) -> Unfit:
    """For a name or value that no header can hold."""
    return Unfit(f"{name} holds a name or value that no message can")


def _add_unfit(unfit: pa.Array | None, name: str, faults: Faults) -> None:
    if unfit is not None:
        faults.add(unfit, unfit_value(name).reason)
