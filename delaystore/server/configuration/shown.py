"""The configuration for people and programs: as TOML, as JSON, and the differences between two."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from delaystore.registry import needed_for
from delaystore.server.configuration.tables import Path, ReadT, Table, dotted, keys_of, tables_of


def as_toml(configuration: Table) -> str:
    """Return the whole configuration as a file has it, with defaults, without passwords; unset keys are comments.

    Raises MissingDependencyError.
    """
    return "\n".join(_lines(configuration, ())) + "\n"


def as_document(configuration: Table) -> dict[str, Any]:
    """Return the whole configuration for JSON, with defaults, without passwords; unset keys are null."""
    struct = type(configuration)
    found: dict[str, Any] = {name: key.shown(getattr(configuration, name)) for name, key in keys_of(struct).items()}
    for name, inner in tables_of(struct).items():
        value = getattr(configuration, name)
        found[name] = {each: as_document(value[each]) for each in value} if inner.several else as_document(value)
    return found


def _lines(configuration: Table, path: Path) -> Iterator[str]:
    with needed_for("showing the configuration"):
        import tomli_w

    struct = type(configuration)
    if path and (keys_of(struct) or not tables_of(struct)):
        yield ""
        yield f"[{dotted(path)}]"
    for name, key in keys_of(struct).items():
        shown = key.shown(getattr(configuration, name))
        yield f"# {name} =" if shown is None else tomli_w.dumps({name: shown}).rstrip("\n")
    for name, inner in tables_of(struct).items():
        value = getattr(configuration, name)
        within: Mapping[Path, Table] = (
            {(*path, name, each): value[each] for each in value} if inner.several else {(*path, name): value}
        )
        for where, table in within.items():
            yield from _lines(table, where)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A changed key, or a table that was added or removed. `fixed`: the change needs a restart of the process."""

    path: Path
    fixed: bool = False

    def __str__(self) -> str:
        table, key = self.path[:-1], self.path[-1]
        return f"[{dotted(table)}] {key}" if table else key


@dataclass(frozen=True, slots=True)
class TableChange(KeyChange):
    """A table of the user's that was added or removed."""

    added: bool = True

    def __str__(self) -> str:
        return f"[{dotted(self.path)}] {'added' if self.added else 'removed'}"


def changes(before: Table, after: Table, path: Path = ()) -> Iterator[KeyChange]:
    """Yield the differences, in the order of the keys."""
    struct = type(before)
    for name in keys_of(struct):
        if getattr(before, name) != getattr(after, name):
            yield KeyChange((*path, name), name in struct.fixed)
    for name, inner in tables_of(struct).items():
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


def with_fixed_of(before: ReadT, after: ReadT) -> ReadT:
    """Return `after` with the keys of `before` whose change needs a restart of the process."""
    struct = type(before)
    kept: dict[str, Any] = {name: getattr(before, name) for name in struct.fixed}
    for name, inner in tables_of(struct).items():
        if not inner.several:
            kept[name] = with_fixed_of(getattr(before, name), getattr(after, name))
    return msgspec.structs.replace(after, **kept)
