"""Django: its own test runner on each database, the example project, and the management command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from delaystore.stores.sql.setup import HEAD
from tests.long import long

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "django_shop"
PREPARED = """
from django.core.management import call_command
from shop.orders import pay, place

call_command("check")
call_command("makemigrations", check_changes=True, dry_run=True)
call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0)
place("Ada")
pay(place("Bob"))
"""
"""What is sent in one process."""


def run(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python, warnings being errors but for those of Django's about its own future."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def manage(database: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the example's manage.py."""
    return run("manage.py", *arguments, folder=SHOP, SHOP_DATABASE=str(database))


@pytest.mark.parametrize("database", ["postgresql", long("mariadb"), long("sqlite"), long("sqlite in memory")])
def test_the_cases(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = request.getfixturevalue(f"{database.partition(' ')[0]}_url")
    environment = {"DJANGO_DATABASE": url, "DJANGO_SETTINGS_MODULE": "tests.integration.django_settings"}
    if database == "sqlite":
        environment["DJANGO_TEST_NAME"] = str(tmp_path / "test.db")
    elif database == "mariadb":  # whose user may make no other database
        environment["DJANGO_TEST_NAME"] = str(make_url(url).database)
    done = run("-m", "django", "test", "tests.integration.django_cases", "--noinput", **environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_example_s_own_tests() -> None:
    done = run("manage.py", "test", folder=SHOP)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Ran 3 tests" in done.stderr


@pytest.mark.long
def test_the_command_line_knows_the_endpoint(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    prepared = manage(database, "shell", "-c", PREPARED)
    assert prepared.returncode == 0, prepared.stderr[-2000:]
    refused = manage(database, "migrate", "delaystore", "zero", "--verbosity", "0")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    listed = manage(database, "delaystore", "list", "--json")
    assert [each["message_id"] for each in json.loads(listed.stdout)["messages"]] == ["reminder-1"], listed.stderr
    assert manage(database, "delaystore", "cancel", "reminder-1").returncode == 0
    wrong = manage(database, "delaystore", "cancle")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr


def test_there_is_a_migration_of_django_s_for_each_version_of_the_tables() -> None:
    files = (ROOT / "delaystore" / "integrations" / "django" / "migrations").glob("0*.py")
    is_there = any(f'UpgradeTables("{HEAD}"' in each.read_text() for each in files)
    assert is_there, "write a migration of Django's for the new version"
