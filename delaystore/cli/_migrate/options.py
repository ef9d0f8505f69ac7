"""The options that the commands of `delaystore migrate` share, and what they name.

Each option is an environment variable as well.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from delaystore.cli._files import require_file
from delaystore.cli._options import environment_option, required, url_option
from delaystore.cli._signals import second_signal_ends
from delaystore.errors import ConfigurationError, MigrationError
from delaystore.times import parse_instant

if TYPE_CHECKING:
    from delaystore.migrations.abc import MigrationSource, MigrationTarget

From = Annotated[
    str | None,
    url_option(
        "--from",
        "Where messages wait: a store's URL, nservicebus-sql+URL, msmq-sql+URL, nhibernate+URL, "
        "apscheduler+URL?destination=QUEUE, file:///PATH.",
        group="migrate",
    ),
]
To = Annotated[
    str | None,
    url_option(
        "--to",
        "Where they shall wait: amqp://...?delays=nservicebus-v2, amqp://... for what is due, a store's URL, or "
        "noop: (noop:URL), a dry run.",
        group="migrate",
    ),
]
EndpointName = Annotated[
    str | None,
    environment_option("--endpoint", "The endpoint whose messages these are.", metavar="NAME", group="migrate"),
]
AllEndpoints = Annotated[
    bool, environment_option("--all-endpoints", "Every endpoint that the source has.", group="migrate")
]
CutoffTime = Annotated[
    str | None,
    environment_option(
        "--cutoff-time",
        "Only what is due then or later moves, in ISO 8601 with its offset; what is due sooner stays.",
        metavar="TIME",
        group="migrate",
    ),
]
AllowRejects = Annotated[
    bool,
    environment_option(
        "--allow-rejects",
        "Begin, and go on, although some messages cannot move; they are set aside, and abort gives them back.",
        group="migrate",
    ),
]


@contextmanager
def opened_source(url: str | None) -> Iterator["MigrationSource"]:
    """The source, for the block, in which a second interrupt ends the process at once.

    ConfigurationError where none is given, or its SQLite file does not exist.
    """
    from delaystore.migrations.sources import open_source

    given = required(url, "source", "--from URL", "DELAYSTORE_MIGRATE_FROM")
    require_file(given)
    with second_signal_ends(), closing(open_source(given)) as source:
        yield source


@contextmanager
def opened_target(url: str | None, endpoint: str) -> Iterator["MigrationTarget"]:
    """The target for one endpoint, for the block. ConfigurationError where none is given, or the URL cannot work."""
    from delaystore.migrations.targets import open_target

    with closing(open_target(given_target(url), endpoint)) as target:
        yield target


def given_target(url: str | None) -> str:
    """The URL; ConfigurationError where none is given."""
    return required(url, "target", "--to URL", "DELAYSTORE_MIGRATE_TO")


def check_different(source: str | None, target: str | None) -> None:
    """ConfigurationError where both URLs are the same store: a run would move messages into the table they are in."""
    if source and target and _same(source, target):
        raise ConfigurationError(
            "--from and --to are the same database, where the endpoint has one table; give another"
        )


def check_endpoints(endpoint: str | None, all_endpoints: bool) -> None:
    """ConfigurationError unless exactly one of the two is given."""
    if endpoint and all_endpoints:
        raise ConfigurationError("pass --endpoint NAME or --all-endpoints, not both")
    if not endpoint and not all_endpoints:
        raise ConfigurationError("pass --endpoint NAME, or --all-endpoints")


def chosen_endpoints(source: "MigrationSource", endpoint: str | None, *, begun: bool = False) -> Sequence[str]:
    """The endpoint given, or all of the source's (`begun`: that have a run).

    ConfigurationError where the source has no endpoint, MigrationError where none of them has a run.
    """
    if endpoint:
        return [endpoint]
    endpoints = source.endpoints()
    if not endpoints:
        raise ConfigurationError(f"there is no endpoint's table in {source.label}; check the URL")
    if not begun:
        return endpoints
    with_run = [name for name in endpoints if source.run(name) is not None]
    if not with_run:
        raise MigrationError(f"there is no run of any endpoint in {source.label}")
    return with_run


def cutoff_of(text: str | None) -> datetime | None:
    """The cut-off in UTC; None: none is given. ConfigurationError for what is no time with an offset."""
    return None if text is None else parse_instant(text, "--cutoff-time").astimezone(UTC)


def _same(one: str, other: str) -> bool:
    """Whether both are stores in one SQL database: there an endpoint has one table."""
    from delaystore.sql.dialects import STORE_DIALECTS

    schemes = {url.partition(":")[0].partition("+")[0].lower() for url in (one, other)}
    if not schemes <= STORE_DIALECTS.keys():
        return False
    from delaystore.sql.engine import create_store_engine, same_database
    from delaystore.sql.errors import configuration_errors
    from delaystore.sql.urls import database_url

    with configuration_errors():
        databases = [database_url(url).difference_update_query(["schema", "table"]) for url in (one, other)]
    return same_database(*map(create_store_engine, databases))
