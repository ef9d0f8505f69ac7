"""Former names of commands, options, environment variables, keys of TOML files and options of loads.

A former name is refused with an error that says the present name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

_PREFIX: Final = "DELAYSTORE_"


@dataclass(frozen=True, slots=True)
class RenamedOption:
    """An option of some commands, which have it by another name now."""

    old: str
    new: str
    commands: tuple[str, ...]


def _option(old: str, new: str, *commands: str) -> RenamedOption:
    return RenamedOption(old, new, commands)


COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ingest": "ingress run",
        "ingest create": "ingress create",
        "ingest verify": "ingress verify",
        "ingest status": "ingress status",
        "ingest retry": "ingress replay",
        "ingest delete": "ingress delete",
        "ingress retry": "ingress replay",
        "delays": "cascade",
        "delays create": "cascade create",
        "delays verify": "cascade verify",
        "delays delete": "cascade delete",
        "delays bind": "cascade bind",
        "delays export": "cascade export",
        "delays migrate": "cascade migrate",
        "delays transfer": "cascade transfer",
        "delays status": "cascade status",
        "operations": "operations list",
    }
)

_MIGRATIONS: Final = tuple(f"migrate {name}" for name in ("preview", "run", "status", "abort", "verify", "cleanup"))
_BY_FILTER: Final = ("list", "count", "cancel", "reschedule", "export")
_ERRORS: Final = ("errors list", "errors replay", "errors discard")
_MOVES: Final = ("cascade migrate", "cascade transfer")
_CHANGES: Final = (
    *("send", "cancel", "reschedule", "pause", "resume", "limit"),
    *("errors replay", "errors discard", "operations resume", "operations abandon"),
)
OPTIONS: Final = (
    _option("--every", "--interval", "status", "ingress status"),
    _option("--watch", "--observe", "cascade status"),
    _option("--rejects", "--rejects-dir", "send", "load"),
    _option("--key-columns", "--id-columns", "send", "load"),
    _option("--allow-rejects", "--allow-rejected", "migrate preview", "migrate run"),
    _option("--max-rejects", "--max-rejected", "migrate run"),
    _option("--rejections", "--list-rejected", "migrate status"),
    _option("--cutoff-time", "--due-after", *_MIGRATIONS),
    _option("--since", "--due-after", *_BY_FILTER),
    _option("--until", "--due-before", *_BY_FILTER),
    _option("--since", "--failed-after", *_ERRORS),
    _option("--until", "--failed-before", *_ERRORS),
    _option("--before", "--after", "changes"),
    _option("--by", "--actor", *(name for name in _CHANGES if name != "reschedule")),
    _option("--by", "--per", "count"),
    _option("--resume", "--continue", "export"),
    _option("--due-by", "--due-from", *_MOVES),
    _option("--mode", "--exactly-once", "dispatch", "serve"),
    _option("--retries", "--number-of-retries", "dispatch", "serve"),
    _option("--handover", "--handover-horizon", "dispatch", "serve"),
    _option("--exchange", "the argument EXCHANGE", "ingress run"),
    _option("--forms", "--delay-headers", "ingress run"),
    _option("--out", "--output-exchange", *(f"ingress {name}" for name in ("create", "verify", "status", "delete"))),
    _option("--as", "--new-exchange", "ingress create"),
    _option("--ingest", "--ingress", "serve"),
    _option("--resume", "the command 'operations resume'", "cancel", "reschedule"),
)

VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DELAYSTORE_INGEST_EXCHANGE": "DELAYSTORE_INGRESS_EXCHANGE",
        "DELAYSTORE_INGRESS_RUN_EXCHANGE": "DELAYSTORE_INGRESS_EXCHANGE",
        "DELAYSTORE_INGEST_QUEUE": "DELAYSTORE_INGRESS_QUEUE",
        "DELAYSTORE_INGEST_OUT": "DELAYSTORE_INGRESS_OUTPUT_EXCHANGE",
        "DELAYSTORE_INGEST_TYPE": "DELAYSTORE_INGRESS_TYPE",
        "DELAYSTORE_INGEST_EXCHANGE_TYPE": "DELAYSTORE_INGRESS_EXCHANGE_TYPE",
        "DELAYSTORE_OPERATIONS_LIMIT": "DELAYSTORE_OPERATIONS_LIST_LIMIT",
        "DELAYSTORE_BY": "DELAYSTORE_ACTOR",
        "DELAYSTORE_MIGRATE_ALLOW_REJECTS": "DELAYSTORE_MIGRATE_ALLOW_REJECTED",
        "DELAYSTORE_MIGRATE_CUTOFF_TIME": "DELAYSTORE_MIGRATE_DUE_AFTER",
        "DELAYSTORE_TO_BROKER": "DELAYSTORE_CASCADE_TRANSFER_TO_BROKER",
    }
)
"""Variables whose names do not follow from those of a command and an option."""


KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "forms": "delay_headers",
        "handover": "handover_horizon",
        "mode": "exactly_once",
        "retries": "number_of_retries",
    }
)
"""Keys of TOML files, in the tables that have the present key."""


LOAD_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({"keycolumns": "idColumns"})
"""Options of loads, as of `df.write`, in lower case."""


def renamed_option(command: str, option: str) -> str | None:
    """The present name of an option of `command`; None: that is not a former name."""
    return next((each.new for each in OPTIONS if each.old == option and command in each.commands), None)


def renamed_variable(name: str) -> str | None:
    """The present name of an environment variable; None: that is not a former name."""
    known = _variables()
    if name in known:
        return known[name]
    for old, new in _prefixes():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return None


@cache
def _variables() -> Mapping[str, str]:
    """Variables with a former option, each by the present and the former names of its command."""
    return MappingProxyType({**dict(_of_options()), **VARIABLES})


def _of_options() -> Iterator[tuple[str, str]]:
    for option in OPTIONS:
        for command in option.commands:
            former = [old for old, new in COMMANDS.items() if new == command]
            for name in (command, *former):
                yield _variable(name, option.old), _named(command, option.new)


def _named(command: str, option: str) -> str:
    """An option's variable, or the text in place of an option."""
    return _variable(command, option) if option.startswith("--") else option


def _variable(command: str, option: str) -> str:
    words = f"{command} {option.removeprefix('--')}"
    return _PREFIX + words.replace(" ", "_").replace("-", "_").upper()


@cache
def _prefixes() -> tuple[tuple[str, str], ...]:
    """The beginnings of the variables of renamed commands, the longest first."""
    found = [(_variable(old, ""), _variable(new, "")) for old, new in COMMANDS.items() if old not in new]
    return tuple(sorted(found, key=lambda each: -len(each[0])))
