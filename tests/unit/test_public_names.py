"""What users import is there, and only what was meant to be."""

import ast
import pkgutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points, version
from pathlib import Path
from types import ModuleType

import pytest

import delaystore
import delaystore.registry
from delaystore.errors import ConfigurationError, MissingDependencyError, UnknownSchemeError
from delaystore.registry import _named
from delaystore.stores import InMemoryDelayedMessageStore, open_store
from delaystore.transports import InMemoryTransport, open_transport

PUBLIC = {  # what users import: a change here is a change for them
    "delaystore": [
        "AsyncDelayedDelivery",
        "AsyncSqlDelayedMessageStore",
        "DelayedDelivery",
        "DelayedDeliverySettings",
        "DelayedMessage",
        "DelayedMessageStore",
        "DispatchObserver",
        "ManagementOutcome",
        "MessageFilter",
        "RabbitMQTransport",
        "SqlDelayedMessageStore",
        "TransactionMode",
        "__version__",
    ],
    "delaystore.stores": [
        "AsyncSqlDelayedMessageStore",
        "DelayedMessageStore",
        "InMemoryDelayedMessageStore",
        "ManagedDelayedMessageStore",
        "OperableDelayedMessageStore",
        "SqlDelayedMessageStore",
        "open_store",
    ],
    "delaystore.transports": [
        "InMemoryTransport",
        "RabbitMQTransport",
        "SqlQueueTransport",
        "Transport",
        "open_transport",
    ],
    "delaystore.dispatcher": [
        "BreakerChange",
        "BreakerState",
        "DispatchObserver",
        "DispatchReport",
        "Dispatcher",
        "Health",
        "PassDurations",
        "PassReport",
        "Sending",
        "SettledMessages",
    ],
    "delaystore.delivery": [
        "AsyncDelayedDelivery",
        "AsyncEnlistedDelivery",
        "AsyncOperations",
        "AsyncSchedules",
        "DelayedDelivery",
        "EnlistedDelivery",
        "Sender",
    ],
    "delaystore.schedules": [
        "CatchUp",
        "IfWaiting",
        "PutResult",
        "Schedule",
        "ScheduleChanges",
        "ScheduleState",
        "Schedules",
    ],
    "delaystore.ingress.control": ["ControlHealth", "ControlQueue"],
    "delaystore.integrations.celery": ["DelayedTasks", "Drained", "drain", "tasks_in"],
    "delaystore.server.web": ["Cascade", "Role", "User", "app"],
    "delaystore.bulk.spark": ["DelaystoreDataSource", "register"],
    "delaystore.server.telemetry": ["MetricsServer", "OpenTelemetryMetrics", "OpenTelemetryObserver"],
    "delaystore.testing": [
        "AsyncFakeTransaction",
        "AsyncTestDelivery",
        "FakeTransaction",
        "Outage",
        "RecordingTransport",
        "SettableClock",
        "StoreCapabilities",
        "StoreConformance",
        "StoreFactory",
        "TestDelivery",
        "TransportCapabilities",
        "TransportConformance",
        "TransportFactory",
        "store_state_machine",
    ],
}
PACKAGES = [
    "delaystore",
    *(found.name for found in pkgutil.walk_packages(delaystore.__path__, "delaystore.") if found.ispkg),
]


def own_names(package: ModuleType) -> set[str]:
    """The public functions, classes and constants that its `__init__` defines."""
    assert package.__file__ is not None
    found: set[str] = set()
    for node in ast.parse(Path(package.__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def order(name: str) -> tuple[bool, bool, str]:
    """Constants, classes, functions."""
    return not name.isupper(), not name[0].isupper(), name


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_offers_exactly_what_it_says(name: str) -> None:
    """What it imports and does not offer is for its own use, or ruff would tell."""
    package = import_module(name)
    assert package.__all__ == sorted(set(package.__all__), key=order)
    assert all(getattr(package, offered) is not None for offered in package.__all__)
    assert own_names(package) <= set(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    if name in PUBLIC:
        assert sorted(package.__all__) == PUBLIC[name]


def test_the_version_is_that_of_the_installed_package() -> None:
    assert delaystore.__version__ == version("delaystore")


@pytest.mark.parametrize(
    "library",
    ["psycopg", "pymysql", "pika", "pytest", "hypothesis", "alembic", "typer", "rich", "celery", "starlette", "jinja2"],
)
def test_importing_delaystore_imports_no_extra(library: str) -> None:
    program = f"import delaystore, delaystore.stores, delaystore.transports, sys; sys.exit('{library}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_errors_are_drawn_as_they_are() -> None:
    errors = import_module("delaystore.errors")
    drawn = [line.split()[-len(line.split()) :] for line in errors.__doc__.splitlines() if "──" in line]
    names = {next(word for word in words if word.endswith("Error")) for words in drawn}
    assert names == {name for name in vars(errors) if name.endswith("Error")} - {"DelaystoreError"}


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's package, with a store and a transport, and one whose library is missing."""
    plugins = EntryPoints(
        [
            EntryPoint("shoebox", "tests.unit.test_public_names:open_shoebox", "delaystore.stores"),
            EntryPoint("pigeon", "tests.unit.test_public_names:open_pigeons", "delaystore.transports"),
            EntryPoint("broken", "a_library_that_is_missing:open", "delaystore.stores"),
            EntryPoint("unnamed", "tests.unit.test_public_names:open_nothing", "delaystore.stores"),
            EntryPoint("uncallable", "tests.unit.test_public_names:PUBLIC", "delaystore.transports"),
        ]
    )
    monkeypatch.setattr(delaystore.registry, "entry_points", lambda group: plugins.select(group=group))


def open_shoebox(url: str) -> InMemoryDelayedMessageStore:
    assert url == "shoebox+red:under-the-bed"
    return InMemoryDelayedMessageStore()


def open_pigeons(url: str) -> InMemoryTransport:
    assert url == "pigeon:"
    return InMemoryTransport()


@pytest.mark.usefixtures("plugged_in")
def test_what_others_wrote_plugs_in_by_scheme() -> None:
    assert isinstance(open_store("shoebox+red:under-the-bed"), InMemoryDelayedMessageStore)
    assert isinstance(open_transport("pigeon:"), InMemoryTransport)


@pytest.mark.usefixtures("plugged_in")
def test_a_plug_in_whose_library_is_missing_says_which() -> None:
    with pytest.raises(MissingDependencyError, match="'broken' needs the library a_library_that_is_missing"):
        open_store("broken://x")


@pytest.mark.usefixtures("plugged_in")
def test_a_wrong_entry_point_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store("unnamed://x")
    assert "'unnamed' cannot be loaded: AttributeError: module 'tests.unit.test_public_names' has no" in str(
        caught.value
    )
    assert 'entry point unnamed = "tests.unit.test_public_names:open_nothing"' in str(caught.value)
    with pytest.raises(
        ConfigurationError, match="'uncallable' is a dict, and no function that opens a URL; fix the en"
    ):
        open_transport("uncallable://x")


def test_an_entry_point_names_its_package() -> None:
    (own,) = entry_points(group="delaystore.stores", name="memory")
    assert _named(own) == 'entry point memory = "delaystore.stores.memory:open_memory_store" of the package delaystore'


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(UnknownSchemeError, match="'redis'; known schemes: mariadb, memory, mysql, postgresql, sqlite"):
        open_store("redis://localhost")


@pytest.mark.parametrize("url", ["", "app.db", "://x", "user:secret@host-without-a-scheme"])
def test_text_that_is_no_url_is_refused_without_showing_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
