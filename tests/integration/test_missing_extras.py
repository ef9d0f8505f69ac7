"""Without an extra: one line that names it, whichever command needs it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import delaystore
from delaystore.registry import EXTRAS

ROOT = Path(delaystore.__file__).parents[1]
WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
del sys.argv[1]
from delaystore.cli.entry import main
main()
"""
STORE = ("--store", "sqlite:///app.db", "--endpoint", "sales")
QUEUE = ("--transport", "sqlite:///app.db")
BROKER = "amqp://127.0.0.1:1"


def run_without(libraries: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, libraries, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.long_runs(after=7)
@pytest.mark.parametrize(
    ("library", "extra", "arguments"),
    [
        ("typer", "cli", ["--version"]),
        ("rich", "cli", ["demo", "--seconds", "0"]),
        ("pika", "rabbitmq", ["dispatch", *STORE, "--transport", BROKER]),
        ("pika", "rabbitmq", ["receive", "billing", "--transport", BROKER]),
        ("pika", "rabbitmq", ["cascade", "export", "--format", "mermaid"]),
        ("httpx", "rabbitmq", ["cascade", "status", "--broker", BROKER]),
        ("msgspec", "rabbitmq", ["ingress", "run", "orders", *STORE, "--broker", BROKER]),
        ("pyspark", "spark", ["load", "a.csv", *STORE, "--map", "body=text,at=due", "--destination", "q"]),
        (
            "pyarrow",
            "parquet",
            ["migrate", "preview", "--from", "file:///{}/a.parquet", "--to", BROKER, "--endpoint", "a"],
        ),
        ("psycopg", "postgresql", ["list", "--store", "postgresql://127.0.0.1:1/x", "--endpoint", "sales"]),
        ("opentelemetry", "prometheus", ["dispatch", *STORE, *QUEUE, "--metrics", "127.0.0.1:0"]),
        ("opentelemetry.sdk.metrics", "prometheus", ["dispatch", *STORE, *QUEUE, "--metrics", "127.0.0.1:0"]),
        ("prometheus_client", "prometheus", ["dispatch", *STORE, *QUEUE, "--metrics", "127.0.0.1:0"]),
        ("pymysql", "mysql", ["count", "--store", "mysql://127.0.0.1:1/x", "--endpoint", "sales"]),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    library: str, extra: str, arguments: list[str], tmp_path: Path
) -> None:
    for name in ("a.csv", "a.parquet"):
        (tmp_path / name).write_text("text,due\n")
    result = run_without(library, *(argument.format(tmp_path) for argument in arguments), folder=tmp_path)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 2, line
    assert line.startswith("error: ")
    assert library.partition(".")[0] in line
    assert f"pip install '.[{extra}]' in a clone of delaystore" in line


def test_without_any_extra_the_core_stores_and_sends(tmp_path: Path) -> None:
    program = f"""
import sys
for name in {sorted(EXTRAS)!r}:
    sys.modules[name] = None
from delaystore import DelayedDelivery, SqlDelayedMessageStore
from delaystore.transports import SqlQueueTransport
store = SqlDelayedMessageStore("sqlite:///app.db")
with DelayedDelivery("sales", store, SqlQueueTransport(store.engine)) as delivery:
    delivery.send("billing", b"pay me", delay=60)
    print(store.count())
store.close()
try:
    from delaystore import RabbitMQTransport
except ValueError as error:
    print(error)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    counted, said = result.stdout.splitlines()
    assert counted == "1"
    assert said == (
        "RabbitMQTransport needs the library pika, which is not installed; "
        "run pip install '.[rabbitmq]' in a clone of delaystore"
    )


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("celery", "DelayedTasks"),
        ("django", "delayed"),
        ("dramatiq", "StoringRabbitmqBroker"),
        ("taskiq", "StoringAioPikaBroker"),
    ],
)
def test_an_adapter_without_its_framework_says_what_to_install(framework: str, name: str) -> None:
    program = f"import sys; sys.modules[{framework!r}] = None; from delaystore.integrations.{framework} import {name}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    advice = f"run pip install '.[{framework}]' in a clone of delaystore"
    said = result.stderr.splitlines()[-1]
    assert said.endswith(f"needs the library {framework}, which is not installed; {advice}")


@pytest.mark.parametrize(
    ("library", "extra", "made"),
    [
        ("opentelemetry", "telemetry", "OpenTelemetryMetrics"),
        ("opentelemetry.sdk", "prometheus", "MetricsServer()"),
        ("prometheus_client", "prometheus", "MetricsServer()"),
    ],
)
def test_telemetry_without_its_extras_says_what_to_install(library: str, extra: str, made: str) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None; "
        f"import delaystore.server.telemetry as telemetry; telemetry.{made}"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert result.stderr.splitlines()[-1].endswith(
        f"which is not installed; run pip install '.[{extra}]' in a clone of delaystore"
    )


def test_the_table_knows_the_extras_of_the_package() -> None:
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) == set(offered) - {"all"}
    for library, extra in EXTRAS.items():
        brought = {re.split(r"[\[<>=]", line)[0].replace("-", "_") for line in offered[extra]}
        # these come with psycopg and SQLAlchemy, as extras of theirs, and in several distributions
        if library not in ("psycopg_binary", "greenlet", "opentelemetry"):
            assert library in brought


def test_a_driver_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PSYCOPG_IMPL", "nonesuch")  # as where psycopg is installed without libpq
    result = run_without("no_such_library", "list", "--store", "postgresql://h/d", "--endpoint", "a", folder=tmp_path)
    assert result.stderr.startswith("error: the database driver cannot be loaded: ")
    assert result.stderr.endswith("run pip install '.[postgresql]' in a clone of delaystore\n")
    assert result.returncode == 2


def test_shells_complete_commands_and_options(tmp_path: Path) -> None:
    def offered(words: str, count: int) -> list[str]:
        environment = os.environ | {"COMP_WORDS": words, "COMP_CWORD": str(count)}
        environment["_DELAYSTORE_COMPLETE"] = "complete_bash"
        command = [sys.executable, "-m", "delaystore"]
        result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return result.stdout.split()

    assert "migrate" in offered("delaystore ", 1)
    assert offered("delaystore setup --queue-", 2) == ["--queue-type"]


def test_the_package_is_run_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "delaystore", "--version"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == f"delaystore {delaystore.__version__}\n"
