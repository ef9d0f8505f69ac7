"""From options to sources, targets and endpoints."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from delaystore.cli.files import require_file
from delaystore.cli.instants import parse_instant
from delaystore.cli.opening import required
from delaystore.errors import ConfigurationError

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, MigrationTarget

_SQL: Final = frozenset({"sqlite", "postgresql", "mysql", "mariadb"})


@contextmanager
def opened_source(url: str | None) -> Iterator["MigrationSource"]:
    """The source, for the block. ConfigurationError where none is given, or it cannot be what is meant."""
    from delaystore.migrations.sources import open_source

    given = required(url, "source", "--from URL", "DELAYSTORE_MIGRATE_FROM")
    require_file(given)
    with closing(open_source(given)) as source:
        yield source


@contextmanager
def opened_target(url: str | None, endpoint: str) -> Iterator["MigrationTarget"]:
    """The target for one endpoint, for the block. ConfigurationError where none is given, or for a URL that cannot."""
    from delaystore.migrations.targets import open_target

    with closing(open_target(given_target(url), endpoint)) as target:
        yield target


def given_target(url: str | None) -> str:
    """The URL; ConfigurationError where none is given."""
    return required(url, "target", "--to URL", "DELAYSTORE_MIGRATE_TO")


def check_different(source: str | None, target: str | None) -> None:
    """ConfigurationError where both URLs are the same store: nothing would ever be done with it."""
    if source and target and _same(source, target):
        raise ConfigurationError(
            "--from and --to are the same database, where the endpoint has one table; give another"
        )


def check_endpoints(endpoint: str | None, all_endpoints: bool) -> None:
    """ConfigurationError unless exactly one of both is given."""
    if endpoint and all_endpoints:
        raise ConfigurationError("pass --endpoint NAME or --all-endpoints, not both")
    if not endpoint and not all_endpoints:
        raise ConfigurationError("pass --endpoint NAME, or --all-endpoints")


def chosen_endpoints(source: "MigrationSource", endpoint: str | None) -> Sequence[str]:
    """The endpoint, or all of the source's. ConfigurationError where it has none."""
    if endpoint:
        return [endpoint]
    endpoints = source.endpoints()
    if not endpoints:
        raise ConfigurationError(f"there is no endpoint's table in {source.label}; check the URL")
    return endpoints


def cutoff_of(text: str | None) -> datetime | None:
    """The cut-off, in UTC."""
    return None if text is None else parse_instant(text, "--cutoff-time").astimezone(UTC)


def _same(one: str, other: str) -> bool:
    """Whether both are stores in one SQL database; their tables go by the endpoint, and so are the same."""
    schemes = {url.partition(":")[0].partition("+")[0].lower() for url in (one, other)}
    if not schemes <= _SQL:
        return False
    from delaystore.stores.sql.engine import create_store_engine, same_database

    return same_database(create_store_engine(one), create_store_engine(other))
