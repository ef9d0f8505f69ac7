"""JSON lines: one object a line, in UTF-8."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from delaystore.errors import InvalidMessageError
from delaystore.strict_json import JsonError, parse_json

MAX_LINE_BYTES: Final = 128 * 1024 * 1024
"""A longer line is refused: a file without line ends must not fill the memory."""
Record = dict[str, Any] | InvalidMessageError
"""A line's object; or why it cannot be read."""
_BOM: Final = b"\xef\xbb\xbf"


def read_json_lines(path: Path, _wanted: Collection[str] = ()) -> Iterator[tuple[int, Record]]:
    """The number of each line, from 1, and its record; blank lines are left out. OSError where it cannot be read."""
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                _skip_rest(stream)
                yield number, InvalidMessageError(f"it has more than {MAX_LINE_BYTES} bytes")
            elif text := line.removeprefix(_BOM if number == 1 else b"").strip():
                yield number, _record(text)


def _record(text: bytes) -> Record:
    try:
        record = parse_json(text)
    except JsonError as error:
        return InvalidMessageError(f"it {error}; a line must be one JSON object")
    return record if type(record) is dict else InvalidMessageError("it is JSON, but no object on one line")


def _skip_rest(stream: BinaryIO) -> None:
    while (piece := stream.readline(1024 * 1024)) and not piece.endswith(b"\n"):
        pass
