"""Tables of TOML, or options in their shape, to the frozen configuration; strict, and with clear errors."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypeVar

from delaystore.errors import ConfigurationError
from delaystore.service.configuration.fields import Key, Table, keys_of, known_keys, required_of, tables_of
from delaystore.service.configuration.kinds import literal
from delaystore.service.configuration.names import Names, Path, dotted
from delaystore.service.configuration.secrets import Hidden, Secret
from delaystore.service.configuration.variables import with_variables

Declared = TypeVar("Declared")
_ALIKE: Final = 0.6
"""From where on a key is taken for a misspelling of another."""


class Reader:
    """Reads one configuration. `root`: the dataclass of the whole.

    `environment`: what ${NAME} stands for; None: for itself, as in options, which a shell has read.
    """

    def __init__(self, root: type, names: Names, environment: Mapping[str, str] | None) -> None:
        self._root = root
        self._names = names
        self._environment = environment

    def read(self, declared_by: type[Declared], given: Mapping[str, Any], path: Path = ()) -> Declared:
        """The table `given` at `path`; raises ConfigurationError, naming the key."""
        keys, inner = keys_of(declared_by), tables_of(declared_by)
        for name in given:
            if name not in keys and name not in inner:
                raise ConfigurationError(f"{self._names.key((*path, name))} {self._unknown(declared_by, name)}")
        for name in required_of(declared_by):
            if name not in given:
                raise ConfigurationError(f"{self._names.key((*path, name))} is missing")
        values: dict[str, Any] = {}
        for name, value in given.items():
            where = (*path, name)
            values[name] = (
                self._key(keys[name], value, where) if name in keys else self._table(inner[name], value, where)
            )
        try:
            return declared_by(**values)
        except ConfigurationError as error:  # what several keys have to do with each other begins with a key's name
            name, _, rest = str(error).partition(" ")
            if name in keys or name in inner:
                raise ConfigurationError(f"{self._names.key((*path, name))} {rest}") from None
            raise ConfigurationError(f"{self._names.table(path)} {error}") from None

    def _key(self, key: Key, given: object, path: Path) -> object:
        try:
            return key.kind.read(self._expanded(key, given))
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._names.key(path)} {error}") from None

    def _expanded(self, key: Key, given: object) -> object:
        if not isinstance(given, str):
            return given
        value = given if self._environment is None else with_variables(given, self._environment)
        return Secret(value, given) if isinstance(key.kind, Hidden) else value

    def _table(self, table: Table, given: object, path: Path) -> object:
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{self._names.key(path)} must be a table, not {literal(given)}")
        if not table.several:
            return self.read(table.declared_by, given, path)
        found: dict[str, object] = {}
        for name, each in given.items():
            if not isinstance(each, Mapping):
                raise ConfigurationError(
                    f"{self._names.key((*path, name))} must be a table, as in [{dotted((*path, 'NAME'))}], "
                    f"not {literal(each)}"
                )
            found[name] = self.read(table.declared_by, each, (*path, name))
        return MappingProxyType(found)

    def _unknown(self, declared_by: type, name: str) -> str:
        own = [*keys_of(declared_by), *tables_of(declared_by)]
        near = get_close_matches(name, own, n=1, cutoff=_ALIKE)
        if near:
            return f"is unknown; the nearest is {near[0]}"
        everywhere = list(known_keys(self._root))
        near = get_close_matches(name, [key for _, key in everywhere], n=1, cutoff=_ALIKE)
        if near:
            places = [
                f"in [{dotted(at)}]" if at else "outside of any table" for at, key in everywhere if key == near[0]
            ]
            return f"is unknown; the nearest is {near[0]}, {' or '.join(places)}"
        return f"is unknown; known here: {', '.join(own)}"
