"""What differs between two configurations, and what of it takes a restart."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from delaystore.service.configuration.fields import keys_of, tables_of
from delaystore.service.configuration.names import Path, dotted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Configuration = TypeVar("Configuration", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Change:
    """A key, or a table that was added or removed. `fixed`: it takes a restart of the process."""

    path: Path
    fixed: bool = False

    def __str__(self) -> str:
        table, key = self.path[:-1], self.path[-1]
        return f"[{dotted(table)}] {key}" if table else key


@dataclass(frozen=True, slots=True)
class TableChange(Change):
    """A table of the user's that was added or removed."""

    added: bool = True

    def __str__(self) -> str:
        return f"[{dotted(self.path)}] {'added' if self.added else 'removed'}"


def changes(before: object, after: object, path: Path = ()) -> Iterator[Change]:
    """What differs, in the order of the keys."""
    kind = type(before)
    for name, key in keys_of(kind).items():
        if getattr(before, name) != getattr(after, name):
            yield Change((*path, name), key.fixed)
    for name, inner in tables_of(kind).items():
        one, other = getattr(before, name), getattr(after, name)
        if not inner.several:
            yield from changes(one, other, (*path, name))
            continue
        for each in {**one, **other}:
            where = (*path, name, each)
            if each in one and each in other:
                yield from changes(one[each], other[each], where)
            else:
                yield TableChange(where, added=each in other)


def with_fixed_of(before: Configuration, after: Configuration) -> Configuration:
    """`after`, but what takes a restart is as in `before`: it stays as it is until then."""
    kind = type(before)
    kept: dict[str, Any] = {name: getattr(before, name) for name, key in keys_of(kind).items() if key.fixed}
    for name, inner in tables_of(kind).items():
        if not inner.several:
            kept[name] = with_fixed_of(getattr(before, name), getattr(after, name))
    return replace(after, **kept)
