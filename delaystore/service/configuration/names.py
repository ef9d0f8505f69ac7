"""How errors call a key: as the file has it, or as an option."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from typing_extensions import override

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
Path = tuple[str, ...]
"""Of a table or a key: the names that lead to it."""


def dotted(path: Sequence[str]) -> str:
    """The path as TOML has it."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path)


class Names(ABC):
    """What errors call tables and keys."""

    @abstractmethod
    def table(self, path: Path) -> str:
        """A table; () is the whole configuration."""

    @abstractmethod
    def key(self, path: Path) -> str:
        """A key, or what stands in its place."""


class NamesInFile(Names):
    """As the file `file` has them."""

    def __init__(self, file: str) -> None:
        self._file = file

    @override
    def table(self, path: Path) -> str:
        return f"{self._file}: [{dotted(path)}]" if path else f"{self._file}:"

    @override
    def key(self, path: Path) -> str:
        return f"{self.table(path[:-1])} {dotted(path[-1:])}"


class NamesOfOptions(Names):
    """As options are called. `options`: by the path of the key, without the names that the user gave."""

    def __init__(self, options: Mapping[Path, str]) -> None:
        self._options = options

    @override
    def table(self, path: Path) -> str:
        return "the options"

    @override
    def key(self, path: Path) -> str:
        plain = path[:1] + path[2:] if path[0] == "endpoint" else path
        return self._options.get(plain, dotted(path))
