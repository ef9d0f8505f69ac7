"""The whole configuration as TOML, defaults too, and no password."""

from collections.abc import Iterator, Mapping
from typing import Any

from delaystore.extras import needed_for
from delaystore.service.configuration.fields import Key, keys_of, tables_of
from delaystore.service.configuration.names import Path, dotted


def as_toml(configuration: object) -> str:
    """`configuration` as a file has it; what is not set stands in comments. Raises MissingDependencyError."""
    return "\n".join(_lines(configuration, ())) + "\n"


def as_document(configuration: object) -> dict[str, Any]:
    """The same for JSON; what is not set is null."""
    kind = type(configuration)
    found: dict[str, Any] = {
        name: None if (value := getattr(configuration, name)) is None else key.kind.shown(value)
        for name, key in keys_of(kind).items()
    }
    for name, inner in tables_of(kind).items():
        value = getattr(configuration, name)
        found[name] = {each: as_document(value[each]) for each in value} if inner.several else as_document(value)
    return found


def _lines(configuration: object, path: Path) -> Iterator[str]:
    kind = type(configuration)
    if path and (keys_of(kind) or not tables_of(kind)):
        yield ""
        yield f"[{dotted(path)}]"
    for name, key in keys_of(kind).items():
        yield _line(name, key, getattr(configuration, name))
    for name, inner in tables_of(kind).items():
        value = getattr(configuration, name)
        within: Mapping[Path, object] = (
            {(*path, name, each): value[each] for each in value} if inner.several else {(*path, name): value}
        )
        for where, each in within.items():
            yield from _lines(each, where)


def _line(name: str, key: Key, value: object) -> str:
    with needed_for("showing the configuration"):
        import tomli_w

    return f"# {name} =" if value is None else tomli_w.dumps({name: key.kind.shown(value)}).rstrip("\n")
