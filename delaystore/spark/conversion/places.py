"""Where files go: a folder of this machine, or a URI."""

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

    def finished(self) -> list[str]:
        """The names of its files."""
        return self._names(fs.FileType.File)

    def folders(self) -> list[str]:
        """The names of the folders in it."""
        return self._names(fs.FileType.Directory)

    def _names(self, kind: fs.FileType) -> list[str]:
        found = self.files.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return [info.base_name for info in found if info.type is kind]


def absolute(place: str) -> str:
    """A URI as it is, and a path from the root on: tasks may have another working directory."""
    return place if "://" in place else os.fspath(Path(place).expanduser().absolute())


def folder(place: str) -> Folder:
    """The folder at a path or URI, which need not exist. ConfigurationError for a URI that cannot be used."""
    if "://" not in place:
        return Folder(fs.LocalFileSystem(), place.rstrip("/"))
    try:
        files, path = fs.FileSystem.from_uri(place)
    except (pa.ArrowException, OSError, ValueError):
        raise ConfigurationError(
            f"{shown(place)} cannot be used; name a folder, or a URI of file, s3, gs, abfss or hdfs"
        ) from None
    return Folder(files, path.rstrip("/"))


def shown(place: str) -> str:
    """Without what may be secret."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextmanager
def used(place: str) -> Iterator[None]:
    """What fails in the block is a LoadError, except that a file is missing."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise LoadError(f"the folder {shown(place)} cannot be used: {why}") from None
