"""The container of deploy/: its files, against their linters, and what they promise each other."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from delaystore.server.configuration.tree import configuration_in
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQVhosts

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The secrets that the script makes."""
    folder = tmp_path / "secrets"
    done = subprocess.run([DEPLOY / "make-secrets.sh", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def hadolint(file: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint has no wheel for this machine")
    command = [program, "--failure-threshold", "style", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_containerfile_is_as_its_linter_wants_it(tmp_path: Path) -> None:
    done = hadolint(DEPLOY / "Containerfile")
    assert (done.returncode, done.stdout) == (0, "")
    worse = tmp_path / "Containerfile"
    worse.write_text(re.sub(r"USER .*", "USER root", CONTAINERFILE))
    assert "DL3002" in hadolint(worse).stdout


def test_the_image_runs_as_nobody_special_and_has_no_secret() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", CONTAINERFILE, re.MULTILINE)
    assert int(user) >= 1000
    assert not re.search(r"(?i)password|secret|token", CONTAINERFILE)
    assert re.search(r"/livez", CONTAINERFILE)


def test_the_image_is_made_of_the_package_alone() -> None:
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set(re.findall(r"[\w.]+", " ".join(re.findall(r"^COPY ((?!--)[^\n]*) \S+$", CONTAINERFILE, re.MULTILINE))))
    assert wanted == copied
    assert all((ROOT / name).exists() for name in wanted)


def test_the_compose_file_is_one_by_the_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="compose-spec has no wheel for this machine")
    text = (DEPLOY / "compose.yaml").read_text()
    parsed = compose_spec.PyCompose.from_yaml(text)
    assert parsed.service_names() == ["postgresql", "rabbitmq", "delaystore"]
    for wrong in (("cap_drop", "cap_drp"), ("service_healthy", "service_well"), ("interval: 5s", "interval: soon")):
        with pytest.raises(ValueError):
            compose_spec.PyCompose.from_yaml(text.replace(*wrong))


def test_whatever_the_compose_file_names_is_there(secrets: Path) -> None:
    for service in COMPOSE["services"].values():
        for kind in ("secrets", "configs"):
            for each in service.get(kind, []):
                assert (each if isinstance(each, str) else each["source"]) in COMPOSE[kind]
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
        assert "healthcheck" in service or service["build"]["dockerfile"] == "deploy/Containerfile"
    for each in COMPOSE["configs"].values():
        assert (DEPLOY / each["file"]).exists()
    assert {Path(each["file"]).name for each in COMPOSE["secrets"].values()} == {
        each.name for each in secrets.iterdir()
    }
    grace = int(re.sub(r"\D", "", COMPOSE["services"]["delaystore"]["stop_grace_period"]))
    assert grace > 45  # the configuration's drain


def test_the_configuration_goes_with_the_secrets(
    secrets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "delaystore.toml"
    config.write_text((DEPLOY / "delaystore.toml").read_text().replace("/run/secrets", str(secrets)))
    found = configuration_in(config)
    database = (secrets / "postgresql").read_text()
    assert len(database) == 32
    assert f":{database}@postgresql/" in found.endpoint["sales"].store.value
    broker = re.search(r"default_pass = (\w{32})\n", (secrets / "rabbitmq.conf").read_text())
    assert broker is not None
    assert f":{broker.group(1)}@rabbitmq" in found.endpoint["sales"].transport.value
    assert found.web.is_protected
    assert found.drain.total_seconds() == 45
    assert found.health.listen is not None
    ports = {mapped.rpartition(":")[2] for mapped in COMPOSE["services"]["delaystore"]["ports"]}
    listening = (found.web.listen, found.health.listen, found.metrics.listen)
    assert ports == {str(address.port) for address in listening if address is not None}
    assert CommandLine(capsys, {})("serve", "--check", "--config", str(config)).code == 0


def test_what_the_ingress_of_the_configuration_reads_is_made_as_the_page_says(
    secrets: Path, rabbitmq: RabbitMQVhosts, rabbitmq_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = " ".join((ROOT / "docs/how-to/deploy.md").read_text().split())
    (command,) = re.findall(r"`podman compose [^`]* exec delaystore delaystore ([^`]*)`", page)
    own = {
        "@/run/secrets/transport": f"@{secrets / 'transport'}",
        "http://rabbitmq:15672": rabbitmq.management_url or "",
    }
    (secrets / "transport").chmod(0o600)
    (secrets / "transport").write_text(f"{rabbitmq_url}\n")
    delaystore = CommandLine(capsys, {})
    result = delaystore(*(own.get(word, word) for word in shlex.split(command)))
    assert result.code == 0, result.err
    (exchange,) = tomllib.loads((DEPLOY / "delaystore.toml").read_text())["endpoint"]["sales"]["ingress"]
    assert delaystore("ingress", "verify", exchange, "--type", "topic", "--broker", rabbitmq_url).code == 0


def test_secrets_are_made_once(secrets: Path) -> None:
    assert secrets.stat().st_mode & 0o777 == 0o700
    before = {each.name: each.read_text() for each in secrets.iterdir()}
    again = subprocess.run([DEPLOY / "make-secrets.sh", secrets], capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert {each.name: each.read_text() for each in secrets.iterdir()} == before
    assert not any(text in again.stderr for text in before.values())
