"""The entries of JSON objects: by row, `,"name":value` one after another. Null or empty: there is none.

Arrow (26) drops rows whose values are all null where it joins with null_handling="skip", so that is not used here.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion.encodings import Encoding

_NO_TEXT: Final = pa.scalar(None, pa.string())


def of_columns(
    names: Sequence[str], columns: Sequence[pa.Array], encoding: Encoding, *, nulls: bool
) -> tuple[pa.Array, pa.Array | None]:
    """One entry for each column, and the rows with a value that has no text. `nulls`: those are written, too."""
    entries, unfit = [], None
    for name, column in zip(names, columns, strict=True):
        texts, bad = encoding.texts(column)
        unfit = either(unfit, bad)
        entry = pc.binary_join_element_wise(f",{encoding.quoted(name)}:", pc.fill_null(texts, "null"), "")
        entries.append(entry if nulls else pc.if_else(texts.is_valid(), entry, ""))
    return joined(entries), unfit


def of_maps(array: pa.Array, encoding: Encoding) -> tuple[pa.Array, pa.Array | None]:
    """The entries of each map, null values among them; and the rows with a name or value that has no text."""
    names, bad_names = encoding.texts(array.keys)
    texts, bad_values = encoding.texts(array.items)
    entries = pc.binary_join_element_wise(",", pc.fill_null(names, '""'), ":", pc.fill_null(texts, "null"), "")
    rows = pc.binary_join(pa.ListArray.from_arrays(array.offsets, entries), "")
    unfit = either(bad_names, bad_values)
    return pc.if_else(array.is_valid(), rows, _NO_TEXT), None if unfit is None else any_of_row(array, unfit)


def any_of_row(array: pa.Array, entries: pa.Array) -> pa.Array:
    """The rows of a list or map array for one of whose children `entries` is true."""
    offsets = array.offsets.to_pylist()
    return pa.array([pc.any(entries.slice(a, b - a)).as_py() is True for a, b in pairwise(offsets)])


def either(left: pa.Array | None, right: pa.Array | None) -> pa.Array | None:
    """Both masks, where None is false everywhere."""
    if left is None or right is None:
        return right if left is None else left
    return pc.or_(left, right)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Entries after entries."""
    return pc.binary_join_element_wise(*(pc.fill_null(part, "") for part in parts), "")


def braced(entries: pa.Array, *, empty: str | None = None) -> pa.Array:
    """The objects; `empty` for those without entries."""
    objects = pc.replace_substring(pc.binary_join_element_wise(entries, "}", ""), ",", "{", max_replacements=1)
    return pc.if_else(pc.fill_null(pc.equal(entries, ""), True), pa.scalar(empty, pa.string()), objects)
