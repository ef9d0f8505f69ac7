"""The files that are meant, their kind, and the facts known before they are read."""

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from glob import glob
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import parquet

from delaystore.bulk.csv_files import CsvForm, count_csv, csv_form
from delaystore.bulk.workbooks import sheet_rows
from delaystore.errors import ConfigurationError
from delaystore.migrations.records.files import numbered_lines

# Which files are meant, and of what kind they are. Nothing here needs Spark.


class Kind(StrEnum):
    """How files are written."""

    CSV = "csv"
    JSON = "json"
    """A JSON object a line."""
    PARQUET = "parquet"
    XLSX = "xlsx"
    """A workbook of Excel; Spark has no reader of it."""


_KINDS: Final = {
    ".csv": Kind.CSV,
    ".json": Kind.JSON,
    ".jsonl": Kind.JSON,
    ".ndjson": Kind.JSON,
    ".parquet": Kind.PARQUET,
    ".xlsx": Kind.XLSX,
}
UNKNOWN_COMPRESSIONS: Final = frozenset({".lz4", ".snappy", ".deflate"})
"""What Python cannot open."""
_COMPRESSED: Final = UNKNOWN_COMPRESSIONS | {".gz", ".bz2", ".zst"}
_GLOB: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files to read. `paths`: as Spark takes them; `size`: bytes of all of them, 0 where that is not known.

    `local`: each file on this computer; `elsewhere`: whether there are others. `separator`: of CSV files, None: it is
    found; `sheet`: of a workbook, None: the first. `form`: how local CSV files are written, once `check_files` has read
    them through; `rows`: how many rows all files have then; None: not known.
    """

    paths: tuple[str, ...]
    kind: Kind
    size: int = 0
    local: tuple[Path, ...] = ()
    elsewhere: bool = False
    separator: str | None = None
    sheet: str | None = None
    form: CsvForm | None = None
    rows: int | None = None

    @property
    def are_several(self) -> bool:
        """Whether a row's file is not known without its name."""
        return self.elsewhere or len(self.local) > 1


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
    ((only, example),) = by_kind.items()
    if only is Kind.XLSX:
        raise ConfigurationError(
            f"{example!r} is a workbook of Excel, which Spark does not read; send it with `delaystore send --file`"
        )
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


# Facts about files, found before Spark reads them.


def can_be_checked(path: Path) -> bool:
    """Whether Python can open the file. False: it is compressed by something that Python does not know."""
    return path.suffix.lower() not in UNKNOWN_COMPRESSIONS


def check_files(files: DataFiles) -> DataFiles:
    """The files, those of CSV read through, with their form and the number of their rows.

    Spark says nothing of an unclosed quote, or of bytes that are no text. Files elsewhere are left to Spark.
    ConfigurationError as `csv_rows`, and where files are written differently.
    """
    if files.kind is not Kind.CSV or files.form is not None:
        return files
    forms = {path: csv_form(path, files.separator) for path in files.local if can_be_checked(path)}
    rows = sum(count_csv(path, form) for path, form in forms.items())
    if not forms:
        return files
    return replace(files, form=_common(forms), rows=None if files.elsewhere or len(forms) < len(files.local) else rows)


def _common(forms: Mapping[Path, CsvForm]) -> CsvForm:
    """How all files are written; a file without a header line, or without line ends, is written as the others."""
    known = {path: form for path, form in forms.items() if form.header} or forms
    form = next((form for form in known.values() if form.line_end is not None), next(iter(known.values())))
    for path, other in known.items():
        if str(other) != str(form):
            raise ConfigurationError(
                f"the files are written differently ({str(path)!r}: {other}; others: {form}); load them separately"
            )
        if other.line_end not in (None, form.line_end):
            raise ConfigurationError(
                f"the files have different line ends ({str(path)!r}: {other.line_end_name}; others: "
                f"{form.line_end_name}); load them separately, or use one kind"
            )
        if [name.lower() for name in other.columns] != [name.lower() for name in form.columns]:
            raise ConfigurationError(f"the CSV files have different columns ({path}); load them separately")
    return form


# How many rows files have, and how large they are, without Spark.

_SPACE: Final = b" \t\r\n"


def count_rows(files: DataFiles) -> int | None:
    """Rows of all files; None: some cannot be counted here."""
    if files.rows is not None or files.elsewhere or not all(map(can_be_checked, files.local)):
        return files.rows
    try:
        return sum(_COUNTERS[files.kind](path, files) for path in files.local)
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException, ConfigurationError):
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


def _count_lines(path: Path, _: DataFiles) -> int:
    """Lines that are not blank."""
    return sum(1 for _, line in numbered_lines(path) if isinstance(line, bytes) and line.strip(_SPACE))


def _count_parquet(path: Path, _: DataFiles) -> int:
    return int(parquet.read_metadata(path).num_rows)


def _count_sheet(path: Path, files: DataFiles) -> int:
    return max(0, sum(1 for _ in sheet_rows(path, files.sheet)) - 1)


_COUNTERS: Final[Mapping[Kind, Callable[[Path, DataFiles], int]]] = {
    Kind.CSV: lambda path, files: count_csv(path, csv_form(path, files.separator)),
    Kind.JSON: _count_lines,
    Kind.PARQUET: _count_parquet,
    Kind.XLSX: _count_sheet,
}
