"""Keys and tables of the configuration, as fields of frozen dataclasses."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from delaystore.service.configuration.kinds import Kind

_DECLARED: Final = "delaystore"
"""The key of a field's metadata under which its declaration is."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a table. `fixed`: a change takes a restart of the process."""

    kind: Kind[Any]
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table within a table. `several`: one for each name that the user gives, as in [endpoint.sales]."""

    declared_by: type
    several: bool = False


def key(kind: Kind[Any], default: Any = MISSING, *, fixed: bool = False) -> Any:
    """A field that a key sets. `default` None: it may be left out; without one it must be there. `fixed`: see Key."""
    return field(default=default, metadata={_DECLARED: Key(kind, fixed)})


def subtable(declared_by: type) -> Any:
    """A field that a table sets; where that is left out, the table's defaults."""
    return field(default_factory=declared_by, metadata={_DECLARED: Table(declared_by)})


def subtables(declared_by: type) -> Any:
    """A field that tables set, by the names that the user gives."""
    return field(default_factory=lambda: MappingProxyType({}), metadata={_DECLARED: Table(declared_by, several=True)})


def keys_of(declared_by: type) -> Mapping[str, Key]:
    """The keys of a table by name."""
    return {each.name: declared for each, declared in _declared(declared_by) if isinstance(declared, Key)}


def tables_of(declared_by: type) -> Mapping[str, Table]:
    """The tables within a table by name."""
    return {each.name: declared for each, declared in _declared(declared_by) if isinstance(declared, Table)}


def required_of(declared_by: type) -> list[str]:
    """The keys that must be there."""
    return [
        each.name
        for each, declared in _declared(declared_by)
        if isinstance(declared, Key) and each.default is MISSING and each.default_factory is MISSING
    ]


def known_keys(declared_by: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each key and table that there can be: the path of the table that it is in, with NAME for a user's, and it."""
    for each, declared in _declared(declared_by):
        yield path, each.name
        if isinstance(declared, Table):
            inner = (*path, each.name, "NAME") if declared.several else (*path, each.name)
            yield from known_keys(declared.declared_by, inner)


def _declared(declared_by: type) -> Iterator[tuple[Field[Any], Key | Table]]:
    for each in fields(declared_by):
        declared = each.metadata.get(_DECLARED)
        if declared is not None:
            yield each, declared
