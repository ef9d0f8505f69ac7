"""`delaystore serve` with a file of recurring schedules: put before dispatching, read again at a reload, checked."""

from pathlib import Path

import pytest

from tests.dispatching import wait_until
from tests.integration.cli import CommandLine
from tests.service.busy import declare, depth, sending
from tests.service.serving import endpoint, serving, write

PING = '[[schedule]]\nname = "invoices/ping"\nevery = "1s"\ndestination = "billing"\nbody = "ping"\n'
ACME = '[[schedule]]\nname = "invoices/acme"\ncron = "@monthly"\ndestination = "billing"\nbody = "pay"\n'


def schedules(folder: Path, *tables: str) -> Path:
    file = folder / "schedules.toml"
    file.write_text('prefix = "invoices/"\n' + "".join(tables or ["schedule = []\n"]))
    return file


def configured(folder: Path, url: str, *, transport: str | None = None) -> Path:
    """A configuration whose endpoint names the file of schedules."""
    table = endpoint("sales", url, transport or url, f'schedules = "{folder / "schedules.toml"}"')
    return write(folder / "delaystore.toml", table)


def test_a_service_puts_the_schedules_of_its_file(sqlite_url: str, rabbitmq_url: str, tmp_path: Path) -> None:
    declare(rabbitmq_url, "billing")
    schedules(tmp_path, PING, ACME)
    config = configured(tmp_path, sqlite_url, transport=rabbitmq_url)
    said = r"^schedules of 'sales' below 'invoices/': {}$".format
    with serving("--config", str(config)) as service:
        service.says(said("2 created, 0 changed, 0 deleted, 0 unchanged"))
        service.wait_until_ready()
        wait_until(lambda: depth(rabbitmq_url, "billing") > 1, "occurrences")
        with sending("sales", sqlite_url) as delivery:
            delivery.schedules.put("other", cron="@daily", destination="billing", body=b"")
            schedules(tmp_path, ACME.replace("monthly", "weekly"))
            assert service.reload() == "reloaded: [endpoint.sales] schedules"
            service.says(said("0 created, 1 changed, 1 deleted, 0 unchanged"))
            assert [each.name for each in delivery.schedules.list()] == ["invoices/acme", "other"]
            changes = [(each.action, each.way) for each in delivery.operations.changes(2)]
            assert sorted(changes) == [("delete", "cli"), ("put", "cli")]
            after = len(service.lines)
            assert service.reload() == "reloaded: nothing has changed"
            schedules(tmp_path, ACME.replace("@monthly", "0 9"))
            refused = service.reload()
            assert refused.startswith(
                "not reloaded, all is as it was: delaystore.toml: [endpoint.sales] schedules "
                f"{tmp_path / 'schedules.toml'}: the schedule 'invoices/acme' is invalid: cron '0 9'"
            )
            assert not any(line.startswith("schedules of") for line in service.lines[after:])
        service.wait_until_ready()
        assert service.stop() == 0
    schedules(tmp_path, ACME.replace("monthly", "weekly"))
    with serving("--config", str(config)) as service:
        service.says(said("0 created, 0 changed, 0 deleted, 1 unchanged"))
        assert service.stop() == 0
    assert not any("Traceback" in line for line in service.lines), "\n".join(service.lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "schedules.toml cannot be read: No such file"),
        ("prefix = ", "schedules.toml is no TOML: Invalid value (at end of document)"),
        ("schedule = []", "schedules.toml: prefix is missing"),
        (f"prefix = 'invoices/'\n{ACME}{ACME}", "the schedule 'invoices/acme' occurs twice"),
        (f"prefix = 'reports/'\n{ACME}", "'invoices/acme' does not begin with the prefix 'reports/'"),
        (f"prefix = 'invoices/'\n{ACME}zone = 'Mars'", "the time zone 'Mars' is unknown"),
        (f"prefix = 'invoices/'\n{ACME}colour = 1", "'colour' is not one of "),
    ],
)
def test_a_mistake_in_the_file_is_found_before_the_start(
    run: CommandLine, sqlite_url: str, tmp_path: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "schedules.toml").write_text(text)
    config = configured(tmp_path, sqlite_url)
    for more in ((), ("--check",)):
        line = run.refused("serve", "--config", str(config), *more)
        assert line.startswith("error: delaystore.toml: [endpoint.sales] schedules /")
        assert says in line


def test_schedules_that_cannot_be_delivered_are_found_before_the_start(
    run: CommandLine, sqlite_url: str, tmp_path: Path
) -> None:
    schedules(tmp_path, ACME.replace('"billing"', '"/exchanges/"'))
    config = configured(tmp_path, sqlite_url, transport="amqp://127.0.0.1:1")
    line = run.refused("serve", "--config", str(config), "--check")
    assert line.startswith("error: the endpoint 'sales': the schedule 'invoices/acme' is invalid: ")


def test_the_file_is_shown_by_its_name(run: CommandLine, sqlite_url: str, tmp_path: Path) -> None:
    file = schedules(tmp_path, ACME)
    config = configured(tmp_path, sqlite_url)
    shown = run("serve", "--config", str(config), "--print-config").out
    assert f'schedules = "{file}"\n' in shown
    as_json = run("serve", "--config", str(config), "--print-config", "--json").document
    assert as_json["endpoint"]["sales"]["schedules"] == str(file)
    assert run("serve", "--config", str(config), "--check").out == "valid: 'sales'\n"
