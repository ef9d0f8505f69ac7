"""What `delaystore serve` refuses, checks and prints."""

import json
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from delaystore.server import systemd
from tests.integration.cli import CommandLine
from tests.service.serving import endpoint, write


@pytest.fixture
def config(tmp_path: Path, sqlite_url: str) -> Path:
    return write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))


def test_what_is_missing_is_said(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no endpoint is given; pass --endpoint NAME or --config FILE" in run.refused("serve")
    assert "no store is given; pass --store URL" in run.refused("serve", "--endpoint", "sales")
    monkeypatch.setenv("DELAYSTORE_STORE", "sqlite:///app.db")
    assert "no transport is given" in run.refused("serve", "--endpoint", "sales")
    assert "nowhere.toml cannot be read: No such file" in run.refused("serve", "--config", "nowhere.toml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drain", "soon"), "--drain 'soon' is no duration"),
        (("--log-level", "loud"), '--log-level must be one of error, warning, info, debug, not "loud"'),
        (("--web", "8765"), "--web must be HOST:PORT"),
        (("--web", "0.0.0.0:1"), "--web 0.0.0.0:1 accepts requests from other machines, and no user is configured"),
        (("--metrics", "x"), "--metrics must be HOST:PORT"),
        (("--metrics-destinations", "3"), "--metrics-destinations needs listen"),
        (("--health", "x"), "--health must be HOST:PORT"),
        (("--store", "memory:"), "--store is in memory, so its messages would be lost"),
        (("--store", "nothing://geheim@x"), "no store is registered for the URL scheme 'nothing'"),
        (("--batch-size", "200000"), "--batch-size must be at most 100,000"),
        (("--number-of-retries", "2000000"), "--number-of-retries must be at most 1,000,000"),
        (("--poll-interval", "0"), "--poll-interval must be a duration above 0"),
        (("--handover-horizon", "1h"), "the endpoint 'sales': handover_horizon 1:00:00 is longer than"),
        (("--error-queue", "/queues/"), "--error-queue cannot be '/queues/'"),
        (("--name", "a\nb"), "--name cannot be 'a"),
        (("--endpoint", "a/b"), "--endpoint cannot be called 'a/b' here"),
    ],
)
def test_mistakes_in_options_name_the_option(
    run: CommandLine, sqlite_url: str, arguments: tuple[str, ...], said: str
) -> None:
    usual = ("--endpoint", "sales", "--store", sqlite_url, "--transport", sqlite_url)
    line = run.refused("serve", "--check", *usual, *arguments)
    assert said in line
    assert "geheim" not in line


def test_check_checks_and_does_nothing(run: CommandLine, config: Path, tmp_path: Path) -> None:
    assert run("serve", "--check", "--config", str(config)).out == "valid: 'sales'\n"
    assert run("serve", "--check", "--config", str(config), "--json").document == {
        "valid": True,
        "endpoints": ["sales"],
    }
    assert not (tmp_path / "delaystore.db").exists()


def test_options_beside_a_file_are_refused_and_variables_are_not(
    run: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYSTORE_STORE", "nothing://x")
    assert run("serve", "--check", "--config", str(config)).code == 0
    for option, value in (("--store", "sqlite:///x"), ("--name", "x"), ("--metrics-destinations", "3")):
        line = run.refused("serve", "--check", "--config", str(config), option, value)
        assert f"{option} does not go with --config; write it into the file" in line


def test_a_port_that_is_taken_is_named(run: CommandLine, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        line = run.refused("serve", "--config", str(config))
    assert f"127.0.0.1:{port} cannot be opened: Address already in use" in line


def test_the_configuration_is_printed_and_read_again(run: CommandLine, config: Path, tmp_path: Path) -> None:
    printed = run("serve", "--print-config", "--config", str(config)).out
    assert 'poll_interval = "500ms"' in printed
    again = tmp_path / "again.toml"
    again.write_text(printed)
    assert run("serve", "--print-config", "--config", str(again)).out == printed
    document = run("serve", "--print-config", "--config", str(config), "--json").document
    assert document["endpoint"]["sales"]["dispatcher"]["batch_size"] == 1000


def test_options_are_printed_as_the_file_that_says_the_same(run: CommandLine, sqlite_url: str, tmp_path: Path) -> None:
    usual = ("--endpoint", "sales", "--store", sqlite_url, "--transport", sqlite_url, "--batch-size", "7", "--no-web")
    printed = run("serve", "--print-config", *usual).out
    (tmp_path / "same.toml").write_text(printed)
    assert run("serve", "--print-config", "--config", str(tmp_path / "same.toml")).out == printed
    assert "batch_size = 7" in printed
    assert "enabled = false" in printed


@pytest.mark.parametrize("named", ["a file", "no file"])
def test_the_unit_for_systemd_is_one(run: CommandLine, config: Path, tmp_path: Path, named: str) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd is not installed")
    if named == "a file":
        config.write_text(
            'drain = "100s"\n[endpoint.sales]\nstore = "@${CREDENTIALS_DIRECTORY}/sales-store"\n'
            'transport = "amqp://app:${PASSWORD}@localhost"\n'
        )
    arguments = ("--config", str(config)) if named == "a file" else ()
    printed = run("serve", "--print-systemd", *arguments).out
    command = re.search(r"^ExecStart=(\S+)", printed, re.MULTILINE)
    assert command is not None
    unit = tmp_path / "delaystore.service"
    unit.write_text(printed.replace(command.group(1), sys.executable))
    done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, str(unit) in done.stderr, done.stdout) == (0, False, ""), done.stderr
    if named == "a file":
        assert f"LoadCredential=sales-store:{tmp_path}/sales-store\n" in printed
        assert "TimeoutStopSec=130\n" in printed
    else:
        assert "LoadCredential=store:/etc/delaystore/store\n" in printed


@pytest.mark.parametrize(
    "name", ["sp ace", 'quo"te', "it's", "100%h", "$HOME", "${X}", "back\\slash", "a;b", "#", "größe", "\\"]
)
def test_the_unit_names_any_folder(run: CommandLine, sqlite_url: str, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    config = folder / "delaystore.toml"
    config.write_text(
        '[endpoint.sales]\nstore = "@${CREDENTIALS_DIRECTORY}/store"\ntransport = "amqp://app:${PASSWORD}@localhost"\n'
    )
    printed = run("serve", "--print-systemd", "--config", str(config)).out
    (command,) = re.findall(r"^ExecStart=(.*)$", printed, re.MULTILINE)
    program, *options, named = shlex.split(command)
    assert options == ["serve", "--config"]
    assert named.replace("%%", "%").replace("$$", "$") == str(config)
    (credential,) = re.findall(r"^LoadCredential=store:(.*)$", printed, re.MULTILINE)
    assert credential.replace("%%", "%") == str(folder / "store")
    verifier = shutil.which("systemd-analyze")
    if verifier is not None:
        unit = tmp_path / "delaystore.service"
        unit.write_text(printed.replace(program, sys.executable, 1))
        done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert (done.returncode, str(unit) in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", ["x\nExecStartPre=touch pwned\n#", "x\ry", "\x1b[2J", os.fsdecode(b"\xff")])
def test_the_unit_names_no_folder_that_would_end_its_line(run: CommandLine, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    config = write(folder / "delaystore.toml", endpoint("sales", "sqlite:///a.db", "sqlite:///a.db"))
    assert "a unit cannot name" in run.refused("serve", "--print-systemd", "--config", str(config))


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_configuration_in_a_home_can_be_read_by_the_unit(
    run: CommandLine, sqlite_url: str, tmp_path: Path, mode: int
) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    if not any(map(home.is_relative_to, ("/home", "/root"))):
        pytest.skip("this home is not where homes are")
    with tempfile.TemporaryDirectory(dir=home) as folder:
        Path(folder).chmod(mode)
        config = write(Path(folder) / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
        printed = run("serve", "--print-systemd", "--config", str(config)).out
        closed = not all(each.stat().st_mode & 0o001 for each in config.parents)
    assert "ProtectHome=read-only\n" in printed
    assert (f"User={home.owner()}\n" in printed, "DynamicUser=yes\n" in printed) == (closed, not closed)
    verifier = shutil.which("systemd-analyze")
    if verifier is not None:
        unit = tmp_path / "delaystore.service"
        unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", printed, flags=re.MULTILINE))
        done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert (done.returncode, str(unit) in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("where", ["in /tmp", "closed", "open", "of a user without a name"])
def test_a_configuration_that_the_unit_cannot_read_is_cautioned_of(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "of a user without a name" and os.getuid() != 0:
        pytest.skip("only root gives files away")
    monkeypatch.setattr(systemd, "_HOMES", (Path("/tmp"),) if where == "of a user without a name" else ())
    if where != "in /tmp":
        monkeypatch.setattr(systemd, "_PRIVATE", ())
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        config = write(Path(folder) / "delaystore.toml", endpoint("sales", "sqlite:///a.db", "sqlite:///a.db"))
        config.chmod(0o644 if where == "open" else 0o600)
        if where == "of a user without a name":
            os.chown(config, 4711, -1)
        result = run("serve", "--print-systemd", "--config", str(config))
    said = [line for line in result.err.splitlines() if str(config) in line]
    assert said == {
        "in /tmp": [f"caution: the unit has a /tmp of its own, and cannot see {config}; move it elsewhere"],
        "closed": [
            f"caution: the unit's user may not read {config}; let others read it (chmod o+r), once no secret is in it"
        ],
    }.get(where, [])
    assert ("User=4711\n" in result.out) == (where == "of a user without a name")
    assert result.code == 0


def test_the_verifier_refuses_what_is_no_unit(tmp_path: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "delaystore.service"
    unit.write_text("[Service]\nType=notify\nExecStart=/bin/true\nWatchdogSec=soon\n")
    done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert str(unit) in done.stderr


def test_json_of_the_configuration_hides_passwords(run: CommandLine, tmp_path: Path) -> None:
    file = write(tmp_path / "delaystore.toml", endpoint("sales", "postgresql://a:geheim@h/x", "amqp://a:geheim@h"))
    for more in ((), ("--json",)):
        printed = run("serve", "--print-config", "--config", str(file), *more).out
        assert "geheim" not in printed
    assert json.loads(printed)["endpoint"]["sales"]["transport"] == "amqp://a:***@h"
