"""Folders at a location: a path of this machine, or a URI."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from delaystore.errors import ConfigurationError, LoadError


class Folder(NamedTuple):
    """A folder of a file system."""

    files: fs.FileSystem
    path: str

    def names(self, kind: fs.FileType) -> list[str]:
        """The names of what is in it, of that kind."""
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
    """`location` without what may be secret."""
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
