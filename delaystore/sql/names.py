"""Names of tables, checked and derived."""

import re
from hashlib import sha256
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.sql.dialects import SqlDialect

LONGEST_SUFFIX: Final = "_version_pkc"
"""The longest suffix that a table's name must leave room for: Alembic's, for the primary key of the version table."""
LOADS: Final = "_loads"
"""The table that remembers bulk loads."""
LOAD: Final = "_load_"
"""Followed by a token: the table in which a bulk load is staged."""
SHELVES: Final = "_shelves"
"""The table whose children are the shelves."""
SHELF: Final = "_shelf_"
"""Followed by a token: a shelf."""
BESIDE: Final = ("_destinations", "_dispatchers", "_activity", "_operations", "_changes")
"""The tables of what operators and dispatchers note, in the order in which `operating_table_names` has them."""
TEST_CLOCK: Final = "_test_clock"
"""The end of a table's name whose store goes by a test's clock; no other table's name ends so."""
TOKEN_LENGTH: Final = 20
"""Hexadecimal digits."""
_DIGEST: Final = 8
_NO_TOKEN: Final = "0" * TOKEN_LENGTH


def default_table_name(endpoint: str) -> str:
    """The table of `endpoint`, unless another is named."""
    return f"{endpoint}_delayed"


def check_identifier(name: str, dialect: SqlDialect, what: str) -> str:
    """`name`, if the database takes it as it is; raises ConfigurationError naming `what` otherwise."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{what} is empty; give it a name")
    if not name.isprintable():
        raise ConfigurationError(f"{what} {name!r} contains a character that does not print; use letters and digits")
    limit = dialect.max_identifier_bytes
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} {name!r} cannot be written as UTF-8") from None
    if size > limit:
        raise ConfigurationError(f"{what} {name!r} has {size} bytes; {dialect.name} allows {limit}, use a shorter name")
    if name.endswith(" ") and not dialect.takes_trailing_space:
        raise ConfigurationError(f"{what} {name!r} ends with a space, which {dialect.name} does not allow")
    return name


def check_table_name(name: str, dialect: SqlDialect) -> str:
    """`name`, if it leaves room for the names derived from it."""
    check_identifier(name + LONGEST_SUFFIX, dialect, f"the table name {name!r} with its suffix,")
    return check_identifier(name, dialect, "the table name")


def timed_table_name(table: str, dialect: SqlDialect, *, by_test_clock: bool) -> str:
    """The name of the table that `table` stands for, checked: one of its own where the store goes by a test's clock.

    Raises ConfigurationError for the name of such a table where it does not.
    """
    if by_test_clock:
        table = table.removesuffix(TEST_CLOCK)
        table = derived_name(table, TEST_CLOCK + LONGEST_SUFFIX, dialect).removesuffix(LONGEST_SUFFIX)
    elif table.lower().endswith(TEST_CLOCK):  # SQLite's names are the same in capitals
        raise ConfigurationError(
            f"the table {table!r} is for tests, which set a clock; name another table, or give the store a clock"
        )
    return check_table_name(table, dialect)


def derived_name(table: str, suffix: str, dialect: SqlDialect) -> str:
    """`table` and `suffix`; if that is too long, a digest replaces the end of the table's name.

    So a table with a long name, which may be somebody else's, need not be renamed.
    """
    limit = dialect.max_identifier_bytes
    if len((table + suffix).encode()) <= limit:
        return table + suffix
    ending = "_" + sha256(table.encode()).hexdigest()[:_DIGEST] + suffix
    return table.encode()[: limit - len(ending)].decode(errors="ignore") + ending


def loads_table_name(table: str, dialect: SqlDialect) -> str:
    """The name of the table that remembers the bulk loads into `table`."""
    return derived_name(table, LOADS, dialect)


def load_table_name(table: str, token: str, dialect: SqlDialect) -> str:
    """The name of the table in which the bulk load `token` into `table` is staged."""
    return derived_name(table, LOAD + token, dialect)


def is_load_table(name: str, table: str, dialect: SqlDialect) -> bool:
    """Whether a table of that name is, or was left behind by, a bulk load into `table`."""
    return _is_of_a_token(name, load_table_name(table, _NO_TOKEN, dialect))


def shelves_table_name(table: str, dialect: SqlDialect) -> str:
    """The name of the table whose children are the shelves of `table`."""
    return derived_name(table, SHELVES, dialect)


def operating_table_names(table: str, dialect: SqlDialect) -> list[str]:
    """The names of the tables in which operators and dispatchers of `table` note what they do."""
    return [derived_name(table, suffix, dialect) for suffix in BESIDE]


def shelf_name(table: str, token: str, dialect: SqlDialect) -> str:
    """The name of the shelf `token` of `table`."""
    return derived_name(table, SHELF + token, dialect)


def is_shelf(name: str, table: str, dialect: SqlDialect) -> bool:
    """Whether a table of that name is a shelf of `table`."""
    return _is_of_a_token(name, shelf_name(table, _NO_TOKEN, dialect))


def _is_of_a_token(name: str, without: str) -> bool:
    return re.fullmatch(re.escape(without[:-TOKEN_LENGTH]) + f"[0-9a-f]{{{TOKEN_LENGTH}}}", name) is not None
