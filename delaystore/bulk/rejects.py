"""Rows that cannot be messages: counted by reason, and kept in files."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyarrow.fs import FileType

from delaystore.bulk.columns import FIRST_AT
from delaystore.bulk.options import WriteOptions
from delaystore.bulk.staging.abc import LoadKey
from delaystore.bulk.values import Plain, braced, of_columns
from delaystore.errors import ConfigurationError, LoadError

# Rejected rows, counted by reason.

MAX_EXAMPLES: Final = 3
"""Rows shown for each reason."""
_SHOWN: Final = 60
"""Characters of each value in an example."""
LENIENT: Final = Plain(lenient=True)
"""How rejected rows are written."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows were rejected: how many, and some of them as JSON, shortened."""

    count: int
    examples: tuple[str, ...] = ()

    def __add__(self, other: "Reason") -> "Reason":
        return Reason(self.count + other.count, (self.examples + other.examples)[:MAX_EXAMPLES])


@dataclass(frozen=True, slots=True)
class Rejects:
    """Rejected rows by the reason's text (such as "due_time is null"). Travels from the tasks to the driver."""

    reasons: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows."""
        return sum(reason.count for reason in self.reasons.values())

    def __add__(self, other: "Rejects") -> "Rejects":
        reasons = dict(self.reasons)
        for text, reason in other.reasons.items():
            reasons[text] = reasons.get(text, Reason(0)) + reason
        return Rejects(reasons)

    def __str__(self) -> str:
        """One line: "3 rows cannot be messages: 2 x due_time is null (such as {...}); 1 x ..."."""
        ordered = sorted(self.reasons.items(), key=lambda item: (-item[1].count, item[0]))
        texts = [f"{reason.count} x {text}{_such_as(reason.examples)}" for text, reason in ordered]
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"{rows} cannot be messages: {'; '.join(texts)}"


def count_rejects(rejected: pa.RecordBatch | None) -> Rejects:
    """Count rejected rows, whose last column is the reason. None: there are none."""
    if rejected is None:
        return Rejects()
    reasons = pc.replace_substring_regex(rejected.column(rejected.num_columns - 1), f"{FIRST_AT}.*", "")
    found = {}
    for entry in pc.value_counts(reasons).to_pylist():
        of_reason = pc.indices_nonzero(pc.equal(reasons, entry["values"])).slice(0, MAX_EXAMPLES)
        found[entry["values"]] = Reason(entry["counts"], _examples(rejected.take(of_reason)))
    return Rejects(found)


def _such_as(examples: tuple[str, ...]) -> str:
    return f" (such as {examples[0]})" if examples else ""


def _examples(rows: pa.RecordBatch) -> tuple[str, ...]:
    """JSON objects of the original columns, with long values cut."""
    names = rows.schema.names[:-1]
    columns = [LENIENT.texts(rows.column(index))[0].to_pylist() for index in range(len(names))]
    return tuple(example(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def example(columns: Iterable[tuple[str, str | None]]) -> str:
    """A row as a JSON object with long values cut, of its columns' names and the JSON of their values."""
    return "{" + ",".join(f"{LENIENT.quoted(name)}:{_cut(text)}" for name, text in columns) + "}"


def _cut(text: str | None) -> str:
    if text is None:
        return "null"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# Folders at a location: a path of this machine, or a URI.


class Folder(NamedTuple):
    """A folder of a file system."""

    files: fs.FileSystem
    path: str

    def names(self, kind: fs.FileType) -> list[str]:
        """The names of its files of that kind."""
        found = self.files.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return [info.base_name for info in found if info.type is kind]


def absolute(location: str) -> str:
    """A URI as it is, and a path from the root on: tasks may have another working directory.

    ConfigurationError for a home folder that is not known.
    """
    if "://" in location:
        return location
    try:
        return os.fspath(Path(location).expanduser().absolute())
    except RuntimeError:
        raise ConfigurationError(
            f"{location!r} begins with a home folder that is not known; write the path from / on, or ./~ for a folder "
            "of that name"
        ) from None


def folder(location: str) -> Folder:
    """The folder at a path or URI, which need not exist. ConfigurationError for a URI that cannot be used."""
    if "://" not in location:
        return Folder(fs.LocalFileSystem(), location.rstrip("/"))
    try:
        files, path = fs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ValueError):
        raise ConfigurationError(
            f"{shown(location)} cannot be used; name a folder, or a URI of file, s3, gs, abfss or hdfs"
        ) from None
    return Folder(files, path.rstrip("/"))


def check_writable(path: str, what: str) -> None:
    """ConfigurationError, about `what`, where no folder of that path can be made, or written if it is there."""
    there = next(each for each in (Path(path), *Path(path).parents) if os.path.lexists(each))
    if not os.path.isdir(there):
        raise ConfigurationError(f"{what} is a file, or in one; name another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{what} cannot be written; name another")


def shown(location: str) -> str:
    """`location` without parts that may be secret."""
    if "://" not in location:
        return location
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextmanager
def folder_errors(location: str) -> Iterator[None]:
    """Raise an OSError of the block as LoadError, unless it is FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise LoadError(f"the folder {shown(location)} cannot be used: {why}") from None


# Files of the rows that cannot be messages: JSON lines of the original columns and the reason.
#
# A task attempt writes one in a folder of its run. The driver keeps those of the winning attempts under the load's
# name and a number, so that the same load, run again, overwrites them.

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,79}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")
_SUFFIX: Final = ".jsonl"
_RUN: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class RejectFolder:
    """The folder of the option `rejects`, a path or a URI, for one load. Picklable: it travels to the tasks.

    LoadError where the folder cannot be read or written.
    """

    location: str = field(repr=False)
    name: str
    """The load's name, as file names have it."""
    run: str = ""
    """This run's name; a later run's name compares greater. Empty: all runs share a pending folder (streams)."""

    @staticmethod
    def of_load(rejects: str, key: LoadKey, run: str = "") -> "RejectFolder":
        """The folder of the load, made where it is missing; ConfigurationError if it cannot be made."""
        location = absolute(rejects)
        made = folder(location)
        try:
            made.files.create_dir(made.path, recursive=True)
        except OSError:
            raise ConfigurationError(
                f"the folder for rejects, {shown(location)}, cannot be made; name another"
            ) from None
        return RejectFolder(location, file_name(key), run)

    def file(self) -> "RejectFile":
        """In a task: a file for one attempt, created with its first row."""
        return RejectFile(self.location, self._pending)

    def keep(self, files: Iterable[str | None]) -> None:
        """On the driver, before the load is promoted: keep these files, and no other of this and earlier runs.

        `files`: the results of `RejectFile.close`. LoadError if one of them is not there.
        """
        opened = folder(self.location)
        with folder_errors(self.location):
            earlier = self._kept(opened)
            for number, file in enumerate((file for file in files if file is not None), start=1):
                kept = f"{self.name}-{number:05}{_SUFFIX}"
                try:
                    opened.files.move(f"{opened.path}/{self._pending}/{file}", f"{opened.path}/{kept}")
                except FileNotFoundError:
                    raise LoadError(
                        f"a task's file of rejected rows is not in {shown(self.location)}: name a folder or URI that "
                        "all machines share"
                    ) from None
                earlier.discard(kept)
            self._delete(opened, earlier)
            for abandoned in self._of_earlier_runs(opened):
                self._delete_folder(opened, abandoned)

    def kept_lines(self) -> Iterator[str]:
        """The rows that `keep` has kept, line by line; nothing where there is no folder."""
        opened = folder(self.location)
        with folder_errors(self.location):
            for name in sorted(self._kept(opened)):
                with opened.files.open_input_stream(f"{opened.path}/{name}") as stream:
                    yield from TextIOWrapper(stream, encoding="utf-8")

    def remove_pending(self) -> None:
        """On the driver, when the run has failed: remove the files that its tasks have written. May be called twice."""
        with folder_errors(self.location):
            self._delete(folder(self.location), ())

    def remove(self) -> None:
        """On the driver, when the load is given up: remove all files of the load. May be called twice."""
        opened = folder(self.location)
        with folder_errors(self.location):
            self._delete(opened, self._kept(opened))

    @property
    def _pending(self) -> str:
        """The folder for what tasks write; Spark's readers skip such a name."""
        return f"_{self.name}.{self.run}" if self.run else f"_{self.name}"

    def _of_earlier_runs(self, opened: Folder) -> list[str]:
        """The pending folders of killed runs. The file of a later run, which has taken the load over, is left out."""
        if not self.run:
            return []
        runs = re.compile(re.escape(f"_{self.name}.") + f"({_RUN})")
        found = (runs.fullmatch(name) for name in opened.names(FileType.Directory))
        return [match[0] for match in found if match is not None and match[1] < self.run]

    def _kept(self, opened: Folder) -> set[str]:
        mine = re.compile(re.escape(self.name) + r"-\d{5,}" + re.escape(_SUFFIX))
        return {name for name in opened.names(FileType.File) if mine.fullmatch(name)}

    def _delete(self, opened: Folder, kept: Iterable[str]) -> None:
        for name in kept:
            with suppress(FileNotFoundError):
                opened.files.delete_file(f"{opened.path}/{name}")
        self._delete_folder(opened, self._pending)

    def _delete_folder(self, opened: Folder, name: str) -> None:
        with suppress(FileNotFoundError):
            opened.files.delete_dir(f"{opened.path}/{name}")


class RejectFile:
    """The rejected rows of one task attempt; its first row makes the folder `pending`.

    An exception in its block removes it. LoadError where it cannot be written.
    """

    def __init__(self, location: str, pending: str) -> None:
        self._location = location
        self._pending = pending
        self._name = f"{uuid4()}{_SUFFIX}"
        self._path = ""
        self._files: Any = None
        self._stream: Any = None

    def write(self, rejected: pa.RecordBatch) -> None:
        """Append rows, whose last column is the reason."""
        with folder_errors(self._location):
            if self._stream is None:
                self._open()
            self._stream.write(lines(rejected))

    def close(self) -> str | None:
        """End the file; its name, for `keep`. None: there is none, for nothing was rejected."""
        if self._stream is None:
            return None
        with folder_errors(self._location):
            self._stream.close()
        return self._name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is None:
            return
        self.close()
        if kind is not None:
            with folder_errors(self._location), suppress(FileNotFoundError):
                self._files.delete_file(self._path)

    def _open(self) -> None:
        opened = folder(self._location)
        opened.files.create_dir(f"{opened.path}/{self._pending}", recursive=True)
        self._files, self._path = opened.files, f"{opened.path}/{self._pending}/{self._name}"
        self._stream = self._files.open_output_stream(self._path, compression=None)


def lines(rejected: pa.RecordBatch) -> bytes:
    """A JSON object of each row, null for null, each with its newline."""
    entries, _ = of_columns(rejected.schema.names, rejected.columns, LENIENT, nulls=True)
    return "".join(f"{line}\n" for line in braced(entries).to_pylist()).encode()


def reject_folder(options: WriteOptions, key: LoadKey, run: str = "") -> RejectFolder | None:
    """The folder of a load with these options; None: they name none. Raises ConfigurationError if it cannot be made."""
    location = rejects_location(options)
    return None if location is None else RejectFolder.of_load(location, key, run)


def check_reject_folder(options: WriteOptions) -> None:
    """ConfigurationError for a folder that cannot be made or written, as far as can be seen; it is not made.

    Of URIs nothing is seen.
    """
    location = rejects_location(options)
    if options.rejects is not None and location is not None and "://" not in location:
        check_writable(absolute(location), f"the folder for rejects, {absolute(options.rejects)},")


def rejects_location(options: WriteOptions) -> str | None:
    """The folder of this store's endpoint, below the one that the option `rejects` names. None: it names none."""
    if options.rejects is None:
        return None
    parts = urlsplit(options.store)
    store = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
    identity = (store, options.schema, options.table, options.endpoint)
    digest = blake2b(repr(identity).encode(), digest_size=4).hexdigest()
    endpoint = _UNSAFE.sub("-", options.endpoint)[:60].strip(".-") or "endpoint"
    return f"{options.rejects.rstrip('/')}/{endpoint}_{digest}"


def kept_rejects(load_id: str, options: WriteOptions) -> Rejects:
    """The rows that the load has rejected and kept; none without the option. Raises LoadError where it cannot be
    read.
    """
    found: dict[str, Reason] = {}
    location = rejects_location(options)
    kept = None if location is None else RejectFolder(absolute(location), file_name(LoadKey(load_id)))
    for line in () if kept is None else kept.kept_lines():
        *columns, (_, text) = json.loads(line).items()
        reason = text.partition(FIRST_AT)[0]
        known = found.get(reason, Reason(0))
        texts = ((name, json.dumps(value, ensure_ascii=False)) for name, value in columns)
        examples = (example(texts),) if known.count < MAX_EXAMPLES else ()
        found[reason] = known + Reason(1, examples)
    return Rejects(found)


def file_name(key: LoadKey) -> str:
    """A name for the load that every file system takes, and no other load has."""
    name = key.load_id if key.batch is None else f"{key.load_id}.{key.batch}"
    if _SAFE_NAME.fullmatch(name) and key.batch is None:
        return name
    digest = blake2b(repr((key.load_id, key.batch)).encode(), digest_size=8).hexdigest()
    return f"{_UNSAFE.sub('-', name)[:60].strip('.-') or 'load'}_{digest}"
