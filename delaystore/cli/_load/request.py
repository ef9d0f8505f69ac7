"""From what was typed to a load's request."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from delaystore.cli._arguments import parse_pair
from delaystore.cli._load.wording import NO_OTHERS, option_of
from delaystore.cli._output import say
from delaystore.errors import ConfigurationError
from delaystore.keys import OnKey
from delaystore.times import parse_duration

if TYPE_CHECKING:
    from delaystore.cli._endpoint import EndpointOptions
    from delaystore.loading.reading.files import Kind
    from delaystore.loading.staging import LoadStore


def parse_kind(name: str | None) -> "Kind | None":
    """What --format says; None: nothing."""
    from delaystore.loading.reading.files import Kind

    try:
        return None if name is None else Kind(name.lower())
    except ValueError:
        raise ConfigurationError(f"--format must be one of {', '.join(Kind)}, not {name!r}") from None


def key_options(on_key: OnKey | None, max_wait: str | None) -> Mapping[str, str | None]:
    """What --on-key and --max-wait say, as options of a load."""
    longest = None if max_wait is None else str(parse_duration(max_wait, "--max-wait").total_seconds())
    return {"onKey": None if on_key is None else on_key.value, "maxWait": longest}


def given_options(options: Mapping[str, str | None], typed: Mapping[str, str] = NO_OTHERS) -> dict[str, str]:
    """Those that are given; ConfigurationError for an empty one, as of a variable that a shell does not know.

    `typed`: those that the command has by another name.
    """
    for name, value in options.items():
        if value == "":
            raise ConfigurationError(f"{option_of(name, typed)} is empty; give it a value, or leave it out")
    return {name: value for name, value in options.items() if value is not None}


def require_existing(store: "LoadStore", where: "EndpointOptions", *, dry_run: bool) -> None:
    """UnknownEndpointError where the endpoint has no tables yet, or no SQLite file; of a dry run a remark."""
    from delaystore.cli._files import UnknownEndpointError, require_file
    from delaystore.cli._unknown_endpoint import require_tables

    try:
        require_file(where.store or "", may_create=True)
        if where.transport is not None:
            where.open_transport(existing=True).close()
        require_tables(store.store, where.endpoint or "")
    except UnknownEndpointError as error:
        if not dry_run:
            raise
        say(f"note: {error}")


def parse_columns(pairs: Sequence[str]) -> Mapping[str, str]:
    """From texts such as `due_time=send_at` to the file's column of each message column."""
    from delaystore.loading.conversion.columns import MESSAGE_COLUMNS

    columns: dict[str, str] = {}
    for pair in pairs:
        given, column = (part.strip() for part in parse_pair(pair, "--map", "NAME=COLUMN"))
        name = given.lower()
        if name not in MESSAGE_COLUMNS:
            raise ConfigurationError(f"--map {pair!r}: a message has no {given!r}; it has {', '.join(MESSAGE_COLUMNS)}")
        if name in columns:
            raise ConfigurationError(f"--map gives {name} twice")
        if not column:
            raise ConfigurationError(f"--map {pair!r} names no column")
        columns[name] = column
    return columns
