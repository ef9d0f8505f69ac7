"""JSON lines as texts: one object a line, with nothing behind it. An ambiguous line is not read at all."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs leave it out
from typing import Final

import pyarrow as pa

from delaystore.errors import ConfigurationError
from delaystore.text import DEEPEST, AmbiguousJsonError, DeepJsonError, JsonError, check_depth, strict_decoder

_BOM: Final = "\ufeff"
_DECODER: Final = strict_decoder(parse_int=str)
"""Whole numbers stay text: none is too long."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
RAW: Final = "_delaystore_broken_record"
"""The column of lines that cannot be read."""
WHY: Final = "_delaystore_why"
"""The column of the reasons."""
_NOT_UTF8: Final = "the line is not readable: it is not UTF-8"
_TWICE: Final = "the line is not readable: a key comes twice"
NO_OBJECT: Final = "the line is not readable: it is no JSON object"


class _UnreadableError(ValueError):
    """Why a line cannot be read. Names no position in it, for equal reasons are counted."""


@dataclass(frozen=True, slots=True)
class JsonLine:
    """The object of a line. `fields`: the text of each value by its key, null is None; objects and arrays as written.

    `why`: the reason why it cannot be read; None: it could. `raw`: then the line, bytes that are no UTF-8 escaped.
    """

    fields: dict[str, str | None] = field(default_factory=dict)
    why: str | None = None
    raw: str | None = None


def read_line(line: bytes) -> JsonLine | None:
    """The line; None: it is blank."""
    try:
        text = line.decode().removeprefix(_BOM)
    except UnicodeDecodeError:
        return JsonLine(why=_NOT_UTF8, raw=line.decode(errors="backslashreplace"))
    if _SPACE.fullmatch(text):
        return None
    try:
        return JsonLine(_fields(text))
    except _UnreadableError as error:
        return JsonLine(why=str(error), raw=text)
    except (RecursionError, DeepJsonError):
        return JsonLine(why="the line is not readable: it is nested too deeply", raw=text)
    except AmbiguousJsonError:
        return JsonLine(why=_TWICE, raw=text)
    except JsonError:
        return JsonLine(
            why="the line is not readable: it holds NaN, Infinity, or a number that no float can be", raw=text
        )
    except JSONDecodeError as error:
        return JsonLine(
            why=f"the line is not readable: {error.msg.removesuffix(' at').removesuffix(' starting')}", raw=text
        )


def read_lines(lines: pa.Array, names: Sequence[str]) -> pa.Array:
    """For each line (bytes) a list: of one struct, or of none where it is blank.

    Its fields are the texts of `names`, then RAW and WHY: the line if it cannot be read, and why. Other keys are left
    out.
    """
    texts: list[list[str | None]] = [[] for _ in range(len(names) + 2)]
    offsets = [0]
    for value in lines.to_pylist():
        if value is not None and (line := read_line(value)) is not None:
            found = (*(line.fields.get(name) for name in names), line.raw, line.why)
            for column, text in zip(texts, found, strict=True):
                column.append(text)
        offsets.append(len(texts[-1]))
    rows = pa.StructArray.from_arrays([pa.array(column, pa.string()) for column in texts], names=[*names, RAW, WHY])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows)


def read_keys(lines: pa.Array) -> pa.Array:
    """For each line (bytes) a list of structs: of its keys, and of why it cannot be read; each only once in `lines`."""
    seen: set[tuple[str | None, str | None]] = set()
    found: list[list[tuple[str | None, str | None]]] = []
    for value in lines.to_pylist():
        line = None if value is None else read_line(value)
        pairs = [] if line is None else [(None, line.why)] if line.why else [(key, None) for key in line.fields]
        found.append([pair for pair in pairs if pair not in seen])
        seen.update(pairs)
    return pa.array(found, pa.list_(pa.struct([("key", pa.string()), ("why", pa.string())])))


def names_of(keys: Iterable[str], reasons: Iterable[str]) -> list[str]:
    """The names of the columns that lines with these keys have, sorted. `reasons`: why other lines cannot be read.

    ConfigurationError where no line can be read, or two keys differ but in case.
    """
    names, untold = sorted(set(keys)), sorted(set(reasons))
    if untold and not names:
        raise ConfigurationError(_nothing_read(untold))
    by_lower: dict[str, str] = {}
    for name in names:
        if (other := by_lower.setdefault(name.lower(), name)) != name:
            raise ConfigurationError(
                f"the lines have keys {other!r} and {name!r}, which differ only in case; use one spelling"
            )
    return names


def _nothing_read(reasons: list[str]) -> str:
    if _NOT_UTF8 in reasons:  # of UTF-16 every other line is no object either
        reasons = [_NOT_UTF8]
    if NO_OBJECT in reasons:
        return "no line is a JSON object (is it one array over several lines? jq -c '.[]' makes lines of it)"
    return f"no line can be read as a JSON object; {' / '.join(reasons)}"


def _fields(text: str) -> dict[str, str | None]:
    """The object's values by key. Raises _UnreadableError, JSONDecodeError, RecursionError."""
    found: dict[str, str | None] = {}
    at = _next(text, 0)
    if text[at] != "{":
        raise _UnreadableError(NO_OBJECT)
    at = _next(text, at + 1)
    at = _next(text, at + 1) if text.startswith("}", at) else _members(text, at, found)
    if at != len(text):
        raise _UnreadableError("the line is not readable: there is more behind its JSON object")
    if "\\u" in text and not _is_text(found):
        raise _UnreadableError("the line is not readable: a text holds half a surrogate pair")
    if len({key.lower() for key in found}) < len(found):
        raise _UnreadableError("the line is not readable: two keys differ in case alone")
    return found


def _members(text: str, at: int, found: dict[str, str | None]) -> int:
    """Add the object's members; the first begins at `at`. Returns the position after its end."""
    while True:
        if not text.startswith('"', at):
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, at = scanstring(text, at + 1)
        if key in found:
            raise _UnreadableError(_TWICE)
        at = _next(text, at)
        if not text.startswith(":", at):
            raise JSONDecodeError("Expecting ':' delimiter", text, at)
        start = _next(text, at + 1)
        value, end = _DECODER.raw_decode(text, start)
        check_depth(value, DEEPEST - 1)
        found[key] = value if value is None or text[start] == '"' else text[start:end]
        at = _next(text, end)
        sign = text[at : at + 1]
        at = _next(text, at + 1)
        if sign == "}":
            return at
        if sign != ",":
            raise JSONDecodeError("Expecting ',' delimiter", text, at)


def _next(text: str, at: int) -> int:
    """The first position from `at` on that is no space."""
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _is_text(found: dict[str, str | None]) -> bool:
    try:
        for key, value in found.items():
            (key + (value or "")).encode()
    except UnicodeEncodeError:
        return False
    return True
