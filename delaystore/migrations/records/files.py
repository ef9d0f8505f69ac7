"""Files as every reader of them opens them: decompressed, lines with their numbers, Parquet with old times known.

Their readers have the rules of their content: a load reads columns of texts or Arrow's types, a migration reads
records of Python's.
"""

import bz2
import gzip
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, Any, Final

from delaystore.registry import needed_for

_BYTE_A_LETTER: Final = "latin-1"
"""Lets lines be split as those of a text are, and nothing be decoded."""
_OLD_TIME: Final = "INT96"
"""A time as Impala and older Sparks write it: an instant, though it does not say so."""


class LongLineError(Exception):
    """A line is longer than its reader takes; the rest of it was skipped."""


@dataclass(frozen=True, slots=True)
class ParquetContents:
    """An open Parquet file (of pyarrow), and the names of its columns whose times are instants, unlike their type."""

    file: Any
    old_instants: Collection[str]


def open_file(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends with .gz, .bz2 or .zst, in any case.

    Raises OSError, and MissingDependencyError for .zst without pyarrow.
    """
    opener = _OPENERS.get(path.suffix.lower())
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return opened


def _open_zstd(path: Path) -> IO[bytes]:
    with needed_for("reading .zst files"):
        arrow = import_module("pyarrow")
    stream: IO[bytes] = BufferedReader(arrow.input_stream(path, compression="zstd"))
    return stream


_OPENERS: Final[Mapping[str, Callable[[Path], Any]]] = {".gz": gzip.open, ".bz2": bz2.open, ".zst": _open_zstd}


def numbered_lines(path: Path, longest: int | None = None) -> Iterator[tuple[int, bytes | LongLineError]]:
    """Each line without its end (LF, CR LF or CR), and its number from 1.

    Args:
        path: the file, decompressed as `open_file` does.
        longest: bytes of a line from which on it is a LongLineError, so that a file without line ends does not fill
            the memory; None: lines may be of any length.

    Raises OSError, EOFError and zlib.error where the file cannot be read.

    """
    with open_file(path) as binary, TextIOWrapper(binary, _BYTE_A_LETTER) as stream:
        lines = stream if longest is None else iter(partial(stream.readline, longest), "")
        for number, line in enumerate(lines, start=1):
            if len(line) == longest and not line.endswith("\n"):
                while (rest := stream.readline(longest)) and not rest.endswith("\n"):
                    pass
                yield number, LongLineError()
            else:
                yield number, line.removesuffix("\n").encode(_BYTE_A_LETTER)


@contextmanager
def parquet_contents(path: Path) -> Iterator[ParquetContents]:
    """The Parquet file for the block, times of INT96 in microseconds.

    Raises MissingDependencyError without pyarrow, pyarrow's errors for a file that is no Parquet, and OSError.
    """
    with needed_for("reading Parquet files"):
        parquet = import_module("pyarrow.parquet")
    with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        columns = map(file.schema.column, range(len(file.schema)))
        yield ParquetContents(file, {column.path for column in columns if column.physical_type == _OLD_TIME})
