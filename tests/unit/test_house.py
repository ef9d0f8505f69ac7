"""Rules of the house that no linter knows."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import delaystore

PACKAGE = Path(delaystore.__file__).parent
SQL = Path("stores/sql")
DATABASE_FLOOR = (
    SQL / "dialects",
    SQL / "engine.py",
    SQL / "codec.py",
    SQL / "urls.py",
    SQL / "faults.py",
    SQL / "errors.py",
)
"""Modules of the SQL store that may know one database from another."""
DRIVER_FLOOR = (SQL / "drivers", SQL / "engine.py")
"""Modules that may know one driver from another; the engine checks a URL before there is a driver's object."""


@cache
def sources(*words: str) -> Sequence[tuple[Path, ast.Module]]:
    """The modules; those that have one of the words, if any are given, as to look at each takes long."""
    texts = [(path.relative_to(PACKAGE), path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    return [(path, ast.parse(text)) for path, text in texts if not words or any(word in text for word in words)]


def is_below(path: Path, floor: Sequence[Path]) -> bool:
    return path in floor or not set(path.parents).isdisjoint(floor)


def asks_which_database(node: ast.AST) -> bool:
    """`dialect.name`, `engine.dialect.name`, `dialect_of(...).name`, or a URL's backend compared with anything."""
    if isinstance(node, ast.Attribute) and node.attr == "name":
        return "dialect" in ast.unparse(node.value).rpartition(".")[2]
    if isinstance(node, ast.Compare | ast.Subscript | ast.Dict):
        return "get_backend_name()" in ast.unparse(node)
    return (
        isinstance(node, ast.arg | ast.Name) and (node.arg if isinstance(node, ast.arg) else node.id) == "dialect_name"
    )


def test_only_one_place_knows_one_database_from_another() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', '')} {ast.unparse(node)}"
        for path, module in sources("dialect", "get_backend_name")
        if not is_below(path, DATABASE_FLOOR)
        for node in ast.walk(module)
        if asks_which_database(node)
    ]
    assert not found, f"ask the dialect of delaystore.stores.sql.dialects instead: {found}"


def test_only_the_command_line_needs_its_libraries() -> None:
    found = [
        f"{path} imports {name}"
        for path, module in sources()
        if path.parts[0] != "cli" and path.parts[:2] != ("integrations", "celery")  # Celery brings click
        for node in ast.walk(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.partition(".")[0] in ("typer", "click", "rich", "shellingham")
    ]
    assert not found, found


def asks_which_driver(node: ast.AST) -> bool:
    """`dialect.is_async`; or a driver's name, of an engine, a dialect or a URL, compared or looked up."""
    if isinstance(node, ast.Attribute) and node.attr == "is_async":
        return "dialect" in ast.unparse(node.value).rpartition(".")[2]
    text = ast.unparse(node) if isinstance(node, ast.Compare | ast.Subscript | ast.Dict) else ""
    return any(asked in text for asked in ("engine.driver", "dialect.driver", "get_driver_name()"))


def test_only_one_place_knows_one_driver_from_another() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', '')} {ast.unparse(node)}"
        for path, module in sources("driver", "is_async")
        if not is_below(path, DRIVER_FLOOR)
        for node in ast.walk(module)
        if asks_which_driver(node)
    ]
    assert not found, f"ask the driver of delaystore.stores.sql.drivers instead: {found}"


def test_the_rule_of_drivers_knows_what_it_forbids() -> None:
    for forbidden in ('engine.driver == "psycopg"', "url.get_driver_name() in known", "engine.dialect.is_async"):
        assert any(asks_which_driver(node) for node in ast.walk(ast.parse(forbidden))), forbidden
    for allowed in ("driver_of(engine).is_async", "self.driver = engine.driver"):
        assert not any(asks_which_driver(node) for node in ast.walk(ast.parse(allowed))), allowed


def test_the_rule_knows_what_it_forbids() -> None:
    for forbidden in (
        'engine.dialect.name == "sqlite"',
        "dialect.name",
        "dialect_of(engine, DIALECTS).name",
        'url.get_backend_name() == "sqlite"',
        "limits[dialect_name]",
    ):
        assert any(asks_which_database(node) for node in ast.walk(ast.parse(forbidden))), forbidden
    for allowed in ("table.name", 'f"{url.get_backend_name()} {url.host}"', "store.dialect.limited(statement, 3)"):
        assert not any(asks_which_database(node) for node in ast.walk(ast.parse(allowed))), allowed


def private_imports(module: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """What a module of `package` imports from behind a `_` that is not of its own package or one around it."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("delaystore"):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                parts = tuple(name.split("."))
                hidden = [n for n, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
                if hidden and parts[: hidden[0]] != package[: hidden[0]]:
                    yield name


def test_a_module_behind_an_underscore_is_its_package_s_own() -> None:
    found = [
        f"{path} imports {name}"
        for path, module in sources()
        for name in private_imports(module, ("delaystore", *path.parts[:-1]))
    ]
    assert not found, found


def test_the_rule_of_underscores_knows_what_it_forbids() -> None:
    for import_of_claims in (
        "from delaystore.stores.sql._claims import Claims",
        "from delaystore.stores.sql import _claims",
    ):
        module = ast.parse(import_of_claims)
        assert list(private_imports(module, ("delaystore", "dispatcher")))
        assert list(private_imports(module, ("delaystore", "stores")))
        assert not list(private_imports(module, ("delaystore", "stores", "sql")))
        assert not list(private_imports(module, ("delaystore", "stores", "sql", "migrations")))


TESTS = Path(__file__).parents[1]
PRIVATE_IN_TESTS = {
    "celery/test_sending.py": "shortens a patience of seconds",
    "clusters/test_destinations_that_take_nothing.py": "shortens the deferral of unavailable destinations",
    "faults/test_frozen_databases.py": "shortens the age of a clock reading, and a patience",
    "ingress/test_consumer_timeout.py": "shortens the time for which messages stay unacknowledged",
    "ingress/test_interleavings.py": "interleaves the steps of an ingress and of a dispatcher, on databases",
    "ingress/test_poison.py": "shortens the pauses between two tries, and a patience",
    "integration/django_cases.py": "has URLs from Django's settings, which only a process with Django can read",
    "integration/migrating.py": "reads a table of a layout that is no product's",
    "integration/test_async_delivery.py": "shortens the age of a clock reading",
    "integration/test_delays_migrate.py": "makes copies larger than a frame",
    "integration/test_estimates.py": "estimates from fewer than 100,000 messages on",
    "integration/test_keys.py": "puts a message between a look-up and an insert",
    "integration/test_migration_receipts.py": "commits a receipt while another connection waits for it",
    "integration/test_native_handover.py": "forgets a cascade sooner than a queue",
    "integration/test_operations_cli.py": "is no terminal",
    "integration/test_plans.py": "reads plans of looks that begin in the middle of a table",
    "integration/test_send_file.py": "has a limit of 1,000,000 rows, and an interrupt after a commit",
    "integration/test_spark_staging.py": "shortens leases, and puts other transactions between the steps of a load",
    "integration/test_sql_operating.py": "puts a dispatcher between two steps, and counts the rows of a look",
    "integration/test_sql_store.py": "has a listener that hears nothing, on PostgreSQL",
    "spark/conftest.py": "ends the service of a Spark session that is shared by all tests",
    "spark/driver.py": "says the cause of a failure as commands do",
    "spark/loads.py": "says the cause of a failure as commands do",
    "spark/test_driver_service.py": "is about a module that needs PostgreSQL and a Spark session",
    "spark/test_load_cli.py": "counts the rows of Spark's batches",
    "spark/test_reading.py": "shortens the life of a snapshot",
    "spark/test_writing.py": "has a client of a service that is gone",
    "web/test_api.py": "has as many background jobs as there may be",
    "web/test_pages.py": "shortens the time for which a page waits for a change",
}
"""The tests outside tests/unit that use private names of delaystore, and what for: a setting or a fault is better."""
A_PRIVATE_NAME = re.compile(r"delaystore(\.[\w{}]+)*\._[a-zA-Z]\w*(\.\w+)*")


def private_names(module: ast.Module) -> Iterator[str]:
    """Private names of delaystore that a test imports, or patches by their names."""
    yield from private_imports(module, ())
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr" and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant | ast.JoinedStr) and A_PRIVATE_NAME.search(ast.unparse(target)):
                yield ast.unparse(target)


def test_tests_go_by_public_names_but_in_unit_tests() -> None:
    found = {
        str(path.relative_to(TESTS)): names
        for path in sorted(TESTS.rglob("*.py"))
        if not is_below(path.relative_to(TESTS), [Path(each) for each in ("unit", "node", "integration/partitions")])
        if (names := list(private_names(ast.parse(path.read_text()))))
    }
    assert {path: names for path, names in found.items() if path not in PRIVATE_IN_TESTS} == {}
    assert PRIVATE_IN_TESTS.keys() - found.keys() == set(), "take them off the list"


def test_the_rule_of_tests_knows_what_it_forbids() -> None:
    for forbidden in (
        "from delaystore.stores.sql._claims import Claims",
        'patch.setattr("delaystore.stores.sql._parts.FRESH_FOR", 0.0)',
        'patch.setattr(f"delaystore.dispatcher.{module}._LONGEST", 0.0)',
    ):
        assert list(private_names(ast.parse(forbidden))), forbidden
    for allowed in ("from delaystore.stores import open_store", 'patch.setattr("delaystore.breakers.SLOW", 0.5)'):
        assert not list(private_names(ast.parse(allowed))), allowed


PIKAS_OWN = frozenset(
    (
        "_impl",
        "_impl_class",
        "_closing_reason",
        "_terminate_stream",
        "_output_marshaled_frames",
        "_flush_output",
        "_frame_buffer",
        "_process_frame",
        "_adapter_call_later",
        "_adapter_remove_timeout",
        "_content_assembler",
        "_sock",
    )
)
"""Private members of pika's connections and channels."""


def touches_pika(node: ast.AST) -> bool:
    """A private member of pika's by its name, or one that is given or overridden."""
    named = node.attr if isinstance(node, ast.Attribute) else None
    named = node.arg if isinstance(node, ast.keyword) else named
    return (node.name if isinstance(node, ast.FunctionDef) else named) in PIKAS_OWN


def test_only_one_module_touches_what_is_pika_s_own() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', '')} {ast.unparse(node)[:80]}"
        for path, module in sources()
        if path != Path("transports/rabbitmq/pika_internals.py")
        for node in ast.walk(module)
        if touches_pika(node)
    ]
    assert not found, f"add a function to pika_internals, with the reason: {found}"


def test_the_rule_of_pika_knows_what_it_forbids() -> None:
    for forbidden in (
        "channel.connection._impl.server_properties",
        "open(parameters, _impl_class=Lenient)",
        "def _flush_output(self): ...",
    ):
        assert any(touches_pika(node) for node in ast.walk(ast.parse(forbidden))), forbidden
    assert not any(
        touches_pika(node) for node in ast.walk(ast.parse("self._transport.send(server_properties(channel))"))
    )


def type_names(module: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names of classes, type aliases and type variables of a module, and whether each is a type variable."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, False
        elif isinstance(node, ast.Assign):
            made = node.value.func if isinstance(node.value, ast.Call) else None
            is_variable = isinstance(made, ast.Name) and made.id in ("TypeVar", "ParamSpec")
            for target in node.targets:
                if isinstance(target, ast.Name) and (is_variable or re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", target.id)):
                    yield target.id, is_variable


def test_a_class_name_means_one_thing() -> None:
    """Of classes, type aliases and type variables. Django names its migrations itself; variables may be alike."""
    homes: dict[str, list[tuple[str, bool]]] = {}
    for path, module in sources():
        if path.parent != Path("integrations/django/migrations"):
            for name, is_variable in type_names(module):
                homes.setdefault(name.lstrip("_"), []).append((str(path), is_variable))
    assert {
        name: [path for path, _ in found]
        for name, found in homes.items()
        if len(found) > 1 and not all(is_variable for _, is_variable in found)
    } == {}


def test_the_rule_of_type_names_sees_each_kind() -> None:
    written = 'class One: ...\nTwo = dict[str, int]\nThreeT = TypeVar("ThreeT")\nFOUR = 4\nfive = 5'
    assert list(type_names(ast.parse(written))) == [("One", False), ("Two", False), ("ThreeT", True)]
