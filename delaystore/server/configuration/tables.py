"""Tables of TOML, or options in their shape, read strictly into frozen structs of msgspec."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import EnumMeta
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args

import msgspec
from typing_extensions import override

from delaystore.errors import ConfigurationError
from delaystore.renames import KEYS
from delaystore.server.configuration.values import Form, Hidden, Secret, Shown, form_of, literal, with_variables

Whole = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Path = tuple[str, ...]
"""The names that lead to a table or a key."""
_ALIKE: Final = 0.6
"""How similar an unknown key must be to a known one to be called its misspelling."""
_WORDS: Final = {r"\bstr\b": "a text", r"\bint\b": "a whole number", r"\bbool\b": "true or false", ">=": "from"}
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Table(msgspec.Struct, frozen=True):
    """A table of the configuration: each field is a key, a table within it, or tables by names that the user gives.

    `fixed`: keys whose change needs a restart of the process.
    """

    fixed: ClassVar[frozenset[str]] = frozenset()


ReadT = TypeVar("ReadT", bound=Table)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a table. `type`: what msgspec checks, unless there is a `form`."""

    type: Any
    form: Form[Any] | None
    required: bool

    def read(self, given: object) -> object:
        """Return the value of a key. Raises ConfigurationError, whose text continues the key's name."""
        if self.form is not None:
            return self.form.read(given)
        if isinstance(given, str) and not given.strip():
            raise ConfigurationError('must be a text, not ""' if given == "" else "must be a text, not white space")
        try:
            return msgspec.convert(given, self.type)
        except msgspec.ValidationError as error:
            if isinstance(self.type, EnumMeta):
                known = ", ".join(str(each.value) for each in self.type)  # type: ignore[var-annotated]
                raise ConfigurationError(f"must be one of {known}, not {literal(given)}") from None
            raise ConfigurationError(f"must be {_wanted(str(error))}, not {literal(given)}") from None

    def shown(self, value: object) -> Shown | None:
        """Return a value as TOML has it, without passwords; None: it is not set."""
        if value is None or self.form is None:
            shown: Shown | None = msgspec.to_builtins(value)
            return shown
        return self.form.shown(value)


def _wanted(error: str) -> str:
    """Return what msgspec expects, in the words of this configuration, as `a whole number from 1`."""
    wanted = error.removeprefix("Expected ").partition(", got ")[0].replace("`", "").replace(" | null", "")
    for word, ours in _WORDS.items():
        wanted = re.sub(word, ours, wanted)
    return wanted


@dataclass(frozen=True, slots=True)
class InnerTable:
    """A table within a table. `several`: one for each name that the user gives, as in [endpoint.sales]."""

    struct: type[Table]
    several: bool


@cache
def keys_of(struct: type[Table]) -> Mapping[str, Key]:
    """Return the keys of a table by name."""
    return {
        each.name: Key(each.type, form_of(each.type), each.required)
        for each in msgspec.structs.fields(struct)
        if _inner_table(each.type) is None
    }


@cache
def tables_of(struct: type[Table]) -> Mapping[str, InnerTable]:
    """Return the tables within a table by name."""
    found = ((each.name, _inner_table(each.type)) for each in msgspec.structs.fields(struct))
    return {name: inner for name, inner in found if inner is not None}


def _inner_table(declared: Any) -> InnerTable | None:
    for several, each in ((False, declared), *((True, each) for each in get_args(declared))):
        if isinstance(each, type) and issubclass(each, Table):
            return InnerTable(each, several)
    return None


def _known_keys(struct: type[Table], path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each key and table that there can be: the path of its own table, with NAME for a user's, and its name."""
    for name in keys_of(struct):
        yield path, name
    for name, inner in tables_of(struct).items():
        yield path, name
        yield from _known_keys(inner.struct, (*path, name, "NAME") if inner.several else (*path, name))


def dotted(path: Sequence[str]) -> str:
    """Return the path as TOML has it."""
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path)


class Origin(ABC):
    """Where a configuration comes from, and what errors call its tables and keys.

    `environment`: the variables for ${NAME}; None: ${NAME} means itself, as in options, which a shell has read.
    """

    environment: Mapping[str, str] | None = None

    @abstractmethod
    def table(self, path: Path) -> str:
        """Return the name of a table; () is the whole configuration."""

    @abstractmethod
    def key(self, path: Path) -> str:
        """Return the name of a key, or of the option in its place."""


class FromFile(Origin):
    """Tables of the TOML file `file`."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self._file = file
        self.environment = environment

    @override
    def table(self, path: Path) -> str:
        return f"{self._file}: [{dotted(path)}]" if path else f"{self._file}:"

    @override
    def key(self, path: Path) -> str:
        return f"{self.table(path[:-1])} {dotted(path[-1:])}"


class FromOptions(Origin):
    """Options of the command line, named as their keys; `options`: those with another name, by the path of the key.

    Paths are without the user's own names. The keys of an endpoint's tables have no options, except the dispatcher's.
    """

    def __init__(self, options: Mapping[Path, str]) -> None:
        self._options = options

    @override
    def table(self, path: Path) -> str:
        return "the options"

    @override
    def key(self, path: Path) -> str:
        plain = path[:1] + path[2:] if path[0] == "endpoint" else path
        if plain in self._options:
            return self._options[plain]
        has_option = len(plain) == 1 or plain[:-1] in (("endpoint",), ("endpoint", "dispatcher"))
        return f"--{plain[-1].replace('_', '-')}" if has_option else dotted(path)


class ConfigurationReader:
    """Reads the tables of one configuration. `root`: the struct of the whole."""

    def __init__(self, root: type[Table], origin: Origin) -> None:
        self._root = root
        self._origin = origin

    def read(self, struct: type[ReadT], given: Mapping[str, Any], path: Path = ()) -> ReadT:
        """Return the table `given` at `path`. Raises ConfigurationError, naming the table and the key."""
        keys, inner = keys_of(struct), tables_of(struct)
        for name in given:
            if name not in keys and name not in inner:
                raise ConfigurationError(f"{self._origin.key((*path, name))} {self._unknown(struct, name)}")
        for name, key in keys.items():
            if key.required and name not in given:
                raise ConfigurationError(f"{self._origin.key((*path, name))} is missing")
        values: dict[str, Any] = {}
        for name, value in given.items():
            where = (*path, name)
            values[name] = (
                self._key(keys[name], value, where) if name in keys else self._table(inner[name], value, where)
            )
        try:
            return struct(**values)
        except ConfigurationError as error:  # checks of several keys together begin with the name of one
            begin, _, rest = str(error).partition(" ")
            name = begin.rstrip(":")
            if name in keys or name in inner:
                colon = begin.removeprefix(name)
                raise ConfigurationError(f"{self._origin.key((*path, name))}{colon} {rest}") from None
            raise ConfigurationError(f"{self._origin.table(path)} {error}") from None

    def _key(self, key: Key, given: object, path: Path) -> object:
        try:
            return key.read(self._expanded(key, given))
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._origin.key(path)} {error}") from None

    def _expanded(self, key: Key, given: object) -> object:
        if not isinstance(given, str):
            return given
        environment = self._origin.environment
        value = given if environment is None else with_variables(given, environment)
        return Secret(value, given) if isinstance(key.form, Hidden) else value

    def _table(self, inner: InnerTable, given: object, path: Path) -> object:
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{self._origin.key(path)} must be a table, not {literal(given)}")
        if not inner.several:
            return self.read(inner.struct, given, path)
        found: dict[str, object] = {}
        for name, each in given.items():
            if not isinstance(each, Mapping):
                raise ConfigurationError(
                    f"{self._origin.key((*path, name))} must be a table, as in [{dotted((*path, 'NAME'))}], "
                    f"not {literal(each)}"
                )
            found[name] = self.read(inner.struct, each, (*path, name))
        return MappingProxyType(found)

    def _unknown(self, struct: type[Table], name: str) -> str:
        own = [*keys_of(struct), *tables_of(struct)]
        if (renamed := KEYS.get(name)) in own:
            return f"is now {renamed}"
        near = get_close_matches(name, own, n=1, cutoff=_ALIKE)
        if near:
            return f"is unknown; the nearest is {near[0]}"
        everywhere = list(_known_keys(self._root))
        near = [renamed] if renamed else get_close_matches(name, [key for _, key in everywhere], n=1, cutoff=_ALIKE)
        places = [f"in [{dotted(at)}]" if at else "outside of any table" for at, key in everywhere if key in near]
        if places:
            return f"is {'now' if renamed else 'unknown; the nearest is'} {near[0]}, {' or '.join(places)}"
        return f"is unknown; known here: {', '.join(own)}"
