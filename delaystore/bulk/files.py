"""The files that are meant, their kind, and the facts known before they are read."""

import csv
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from glob import glob
from io import TextIOWrapper
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import parquet

from delaystore.errors import ConfigurationError
from delaystore.migrations.records.files import numbered_lines, open_file

# Which files are meant, and of what kind they are. Nothing here needs Spark.


class Kind(StrEnum):
    """How files are written."""

    CSV = "csv"
    JSON = "json"
    """A JSON object a line."""
    PARQUET = "parquet"


_KINDS: Final = {
    ".csv": Kind.CSV,
    ".json": Kind.JSON,
    ".jsonl": Kind.JSON,
    ".ndjson": Kind.JSON,
    ".parquet": Kind.PARQUET,
}
UNKNOWN_COMPRESSIONS: Final = frozenset({".zst", ".lz4", ".snappy", ".deflate"})
"""What Python cannot open."""
_COMPRESSED: Final = UNKNOWN_COMPRESSIONS | {".gz", ".bz2"}
_GLOB: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files to read. `paths`: as Spark takes them; `size`: bytes of all of them, 0 where that is not known.

    `local`: each file on this computer; `elsewhere`: whether there are others. `checked`: whether local CSV files were
    read through; `line_end`: the end of their lines then.
    """

    paths: tuple[str, ...]
    kind: Kind
    size: int = 0
    local: tuple[Path, ...] = ()
    elsewhere: bool = False
    checked: bool = False
    line_end: str | None = None


@dataclass(frozen=True, slots=True)
class _FoundFile:
    """A file, by its own name; `given`: the path that Spark is to read it by."""

    name: str
    given: str
    size: int = 0
    local: bool = False


def find_files(given: Sequence[str], kind: Kind | None = None) -> DataFiles:
    """The files of `given` (files, folders, globs, or URIs such as s3a://... that Spark's file systems know).

    `kind`: of all of them; None: by the endings of their names. Raises ConfigurationError where there are none, where a
    name says no kind, where they are of several kinds, or where Spark would read a file twice or not at all.
    """
    if not given:
        raise ConfigurationError("no files are given; name files, folders or globs")
    found = [file for path in given for file in _find(path)]
    _check_once(found)
    for file in found:
        ending = Path(file.name).suffix
        if ending.lower() in _COMPRESSED and not ending.islower():
            raise ConfigurationError(
                f"{file.name!r} ends with {ending}, which Spark does not know as a compression; rename it to "
                f"{ending.lower()}, or send it with `delaystore send --file`"
            )
    kinds = {file.name: kind or _kind_of(file.name) for file in found}
    by_kind = {each: name for name, each in kinds.items()}
    if len(by_kind) > 1:
        examples = ", ".join(f"{name!r} is {each}" for each, name in sorted(by_kind.items()))
        raise ConfigurationError(f"the files are of several kinds ({examples}); load one kind at a time")
    ((only, _),) = by_kind.items()
    return DataFiles(
        paths=tuple(dict.fromkeys(file.given for file in found)),
        kind=only,
        size=sum(file.size for file in found),
        local=tuple(dict.fromkeys(Path(file.name) for file in found if file.local)),
        elsewhere=not all(file.local for file in found),
    )


def find_file(path: str, kind: Kind | None = None) -> DataFiles:
    """One file of this computer, which is read without Spark. Raises ConfigurationError as `find_files`."""
    if len(urlsplit(path).scheme) > 1:
        raise ConfigurationError(f"{path!r} is no file of this computer; `delaystore load` reads it, with Spark")
    file = Path(path)
    if not file.exists():
        raise ConfigurationError(f"there is no file {path!r}; check the path")
    if file.is_dir():
        raise ConfigurationError(f"{path!r} is a folder; name one file, or load all with `delaystore load`")
    _check_regular(file)
    if file.suffix.lower() in UNKNOWN_COMPRESSIONS:
        raise ConfigurationError(
            f"{path!r} is compressed as only Spark knows it; unpack it, or load it with `delaystore load`"
        )
    return DataFiles((path,), kind or _kind_of(path), _size(file), (file,))


def _find(path: str) -> Iterator[_FoundFile]:
    if len(urlsplit(path).scheme) > 1:
        yield _FoundFile(path.rstrip("/"), path)
        return
    matches = [path] if os.path.lexists(path) else sorted(glob(path, recursive=True)) if _GLOB & set(path) else []
    if not matches:
        raise ConfigurationError(f"there is no file {path!r}; check the path")
    for match in matches:
        yield from _local(Path(match))


def _local(path: Path) -> Iterator[_FoundFile]:
    _check_name(path)
    given = _for_spark(path)
    if not path.is_dir():
        _check_regular(path)
        yield _FoundFile(str(path), given, _size(path), local=True)
        return
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file.relative_to(path))]
    if not files:
        raise ConfigurationError(f"the folder {str(path)!r} has no files in it")
    _check_folders(path, files)
    for file in files:
        _check_name(file)
        yield _FoundFile(str(file), given, _size(file), local=True)


def _check_folders(path: Path, files: Sequence[Path]) -> None:
    """ConfigurationError where Spark would leave files out.

    It reads the files in the folder itself, or else in folders such as `day=1`, whose names become columns.
    """
    first, *others = files
    columns = _columns(path, first)
    for file in files:
        if None in _columns(path, file):
            raise ConfigurationError(
                f"{str(file)!r} is in a folder below {str(path)!r}, which Spark does not look into; name that "
                f"folder, or take a glob, such as {str(path / '**' / ('*' + file.suffix))!r}"
            )
    for file in others:
        if _columns(path, file) != columns:
            raise ConfigurationError(
                f"{str(first)!r} and {str(file)!r} are in folders of different columns (such as day=1); "
                "load them separately"
            )


def _columns(path: Path, file: Path) -> list[str | None]:
    """The columns that the folders between `path` and `file` make. None: the folder's name makes none."""
    folders = file.relative_to(path).parts[:-1]
    return [name.partition("=")[0] if "=" in name else None for name in folders]


def _check_once(found: Sequence[_FoundFile]) -> None:
    given: dict[str, str] = {}
    for file in found:
        if given.setdefault(os.path.abspath(file.name), file.given) != file.given:
            raise ConfigurationError(
                f"the file {file.name!r} is named twice, by itself and by its folder; name it once"
            )


def _check_name(path: Path) -> None:
    """Hadoop takes the text before a colon for a URI's scheme (HADOOP-14217), however it is written."""
    if ":" in str(path.absolute()):
        raise ConfigurationError(
            f"{str(path)!r} has a colon in its path, which Spark cannot read; rename it, or pass a link without one"
        )


def _check_regular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ConfigurationError(
            f"{str(path)!r} is a pipe or a device, and a file is read more than once; write it to a file first, or "
            "pipe it into `delaystore send --file -`"
        )


def _size(path: Path) -> int:
    try:
        with path.open("rb"):
            return path.stat().st_size
    except OSError as error:
        raise ConfigurationError(f"the file {str(path)!r} cannot be read: {error.strerror}") from None


def _is_hidden(path: Path) -> bool:
    """Whether Spark leaves it out of its folder, as it does _SUCCESS and checksums."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.parts)


def _for_spark(path: Path) -> str:
    """Absolute, and every character itself: Spark takes each path as a glob."""
    return "file:" + "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in str(path.absolute()))


def _kind_of(name: str) -> Kind:
    path = Path(name)
    while path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    found = _KINDS.get(path.suffix.lower())
    if found is None:
        raise ConfigurationError(
            f"{name!r} does not say how it is written; its name must end with {', '.join(_KINDS)}, or say "
            f"which format all have: {', '.join(Kind)}"
        )
    return found


# Checks of CSV files before Spark reads them: it says nothing of an unclosed quote, or of bytes that are no UTF-8.
#
# The dialect is that of RFC 4180: a quote in a quoted field is doubled, and a backslash is nothing but a letter.

_NAMES: Final = {"\r\n": "CR LF", "\n": "LF", "\r": "CR"}
OTHER_COLUMNS: Final = "the line is not readable, or has other columns"
"""Why a row of a CSV file is rejected that has more fields than the header, or fewer."""
_LONGEST: Final = 2**31 - 1
"""Of a field, in characters; more than Spark can hold."""


def can_be_checked(path: Path) -> bool:
    """Whether Python can open the file. False: it is compressed by something that Python does not know."""
    return path.suffix.lower() not in UNKNOWN_COMPRESSIONS


def check_csv(path: Path) -> str | None:
    """Read through the file: the end of its lines; None: it has one line at most, without an end.

    ConfigurationError, with the line, for what Spark would change or lose in silence: text that is no UTF-8, a quote
    that is not closed, text behind a closing quote, rows that end unlike the first.
    """
    try:
        return _check(path)
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{str(path)!r} is not UTF-8 (line {_first_not_utf8(path)}); convert it, as by iconv -t UTF-8"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"the file {str(path)!r} cannot be read: {error}") from None


def count_csv(path: Path) -> int:
    """How many rows a file that can be checked has, without its header. Raises OSError, ValueError and their kin."""
    with open_file(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as stream, long_fields():
        return max(0, sum(1 for row in csv.reader(stream) if row) - 1)


def _check(path: Path) -> str | None:
    with open_file(path) as binary, TextIOWrapper(binary, "utf-8-sig", newline="") as stream, long_fields():
        line = ""

        def lines() -> Iterator[str]:
            nonlocal line
            for read in stream:
                line = read
                yield line

        rows = csv.reader(lines(), strict=True)
        begin, end = 1, None
        try:
            for _ in rows:
                found = next((each for each in _NAMES if line.endswith(each)), None)  # None: the file ends there
                if end is None:
                    end = found
                elif found != end and found is not None:
                    raise ConfigurationError(
                        f"{str(path)!r} has two kinds of line ends (its first row: {_NAMES[end]}, line "
                        f"{rows.line_num}: {_NAMES[found]}); use one kind"
                    )
                begin = rows.line_num + 1
        except csv.Error:
            raise ConfigurationError(
                f"{str(path)!r} is no CSV in the row that begins at line {begin}: a quote is not closed, or there is "
                f"text behind a closing quote (line {rows.line_num}); double the quotes inside of quoted fields"
            ) from None
    return end


def common_end(paths: Iterable[Path]) -> str | None:
    """Check all files: the end of their lines; None: they have no ends. ConfigurationError also if they differ."""
    known: dict[str, Path] = {}
    for path in paths:
        if (end := check_csv(path)) is not None:
            known.setdefault(end, path)
    if len(known) > 1:
        examples = ", ".join(f"{str(path)!r}: {_NAMES[end]}" for end, path in known.items())
        raise ConfigurationError(
            f"the files have different line ends ({examples}); load them separately, or use one kind"
        )
    return next(iter(known), None)


@contextmanager
def long_fields() -> Iterator[None]:
    """Lift the csv module's limit of a field's length, which is one for the whole process."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _first_not_utf8(path: Path) -> int:
    with open_file(path) as binary:
        for number, line in enumerate(binary, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


# How many rows files have, and how large they are, without Spark.

_SPACE: Final = b" \t\r\n"


def count_rows(files: DataFiles) -> int | None:
    """Rows of all files; None: some cannot be counted here."""
    if files.elsewhere or not all(map(can_be_checked, files.local)):
        return None
    try:
        return sum(map(_COUNTERS[files.kind], files.local))
    except (OSError, EOFError, ValueError, zlib.error, csv.Error, pa.ArrowException):
        return None


def bytes_a_row(files: DataFiles) -> int | None:
    """The mean size of a row, uncompressed, in the row group where it is largest; None: it is not known."""
    if files.kind is not Kind.PARQUET or not files.local:
        return None
    try:
        metadata = [parquet.read_metadata(path) for path in files.local]
    except (OSError, pa.ArrowException):
        return None
    groups = [one.row_group(number) for one in metadata for number in range(one.num_row_groups)]
    return max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=None)


def _count_lines(path: Path) -> int:
    """Lines that are not blank."""
    return sum(1 for _, line in numbered_lines(path) if isinstance(line, bytes) and line.strip(_SPACE))


def _count_parquet(path: Path) -> int:
    return int(parquet.read_metadata(path).num_rows)


_COUNTERS: Final[Mapping[Kind, Callable[[Path], int]]] = {
    Kind.CSV: count_csv,
    Kind.JSON: _count_lines,
    Kind.PARQUET: _count_parquet,
}
