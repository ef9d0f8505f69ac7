"""What arrives is data: nothing in the package could run it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import delaystore

PACKAGE: Final = Path(delaystore.__file__).parent
OF_TESTS: Final = PACKAGE / "testing"
"""It tests stores in processes of its own, which it talks to by a pipe without a name."""
LOADERS: Final = frozenset({"pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "jsonpickle"})
CALLS: Final = frozenset({"eval", "exec", "compile", "__import__"})
PICKLING: Final = frozenset({"send", "recv"})
"""Methods of multiprocessing's connections that pickle; others send bytes."""


def dangers(tree: ast.Module) -> Iterator[str]:
    """What of a module could run what it is given."""
    nodes = list(ast.walk(tree))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    yield from LOADERS.intersection(module.partition(".")[0] for module in modules)
    calls = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    yield from CALLS & calls
    if "multiprocessing.connection" in modules:
        yield from PICKLING.intersection(node.attr for node in nodes if isinstance(node, ast.Attribute))


def test_nothing_is_unpickled_or_evaluated() -> None:
    sources = [path for path in sorted(PACKAGE.rglob("*.py")) if OF_TESTS not in path.parents]
    found = {str(path.relative_to(PACKAGE)): set(dangers(ast.parse(path.read_text()))) for path in sources}
    assert not {path: dangers for path, dangers in found.items() if dangers}


def test_a_danger_would_be_found() -> None:
    connection = "from multiprocessing.connection import Client\nClient('x').recv()"
    for text in ("import pickle", "from yaml import load", "eval('1')", connection):
        assert list(dangers(ast.parse(text)))
