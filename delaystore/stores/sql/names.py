"""Names of tables: checked and derived here, quoted by SQLAlchemy."""

import re
from hashlib import sha256
from typing import Final

from sqlalchemy import Dialect, Table

from delaystore.errors import ConfigurationError

MAX_IDENTIFIER_BYTES: Final = {"postgresql": 63, "mysql": 64, "mariadb": 64, "sqlite": 255, "mssql": 128}
"""Longer names are cut silently by PostgreSQL, where two of them could then meet in one table."""
LONGEST_SUFFIX: Final = "_version_pkc"
"""What is appended to a table's name for what it cannot be without; this one is Alembic's, for its version's key."""
LOADS: Final = "_loads"
"""The table that remembers bulk loads."""
LOAD: Final = "_load_"
"""With a token behind it: the table in which a bulk load waits until all of it is there."""
TOKEN_LENGTH: Final = 20
"""Hexadecimal digits."""
_DIGEST: Final = 8


def default_table_name(endpoint: str) -> str:
    """The table of `endpoint`, unless another is named."""
    return f"{endpoint}_delayed"


def check_identifier(name: str, dialect_name: str, what: str) -> str:
    """`name`, if the database takes it as it is; ConfigurationError naming `what` otherwise."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{what} is empty; give it a name")
    if not name.isprintable():
        raise ConfigurationError(f"{what} {name!r} contains a character that does not print; use letters and digits")
    limit = MAX_IDENTIFIER_BYTES[dialect_name]
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} {name!r} cannot be written as UTF-8") from None
    if size > limit:
        raise ConfigurationError(f"{what} {name!r} has {size} bytes; {dialect_name} allows {limit}, use a shorter name")
    if name.endswith(" ") and dialect_name in ("mysql", "mariadb"):
        raise ConfigurationError(f"{what} {name!r} ends with a space, which {dialect_name} does not allow")
    return name


def check_table_name(name: str, dialect_name: str) -> str:
    """`name`, if it leaves room for the names derived from it."""
    check_identifier(name + LONGEST_SUFFIX, dialect_name, f"the table name {name!r} with its suffix,")
    return check_identifier(name, dialect_name, "the table name")


def derived_name(table: str, suffix: str, dialect_name: str) -> str:
    """The name of what belongs to `table`; a digest stands for the end of a name that leaves no room for the suffix.

    So a long name, perhaps of somebody else's table that cannot be renamed, stops nothing.
    """
    limit = MAX_IDENTIFIER_BYTES[dialect_name]
    if len((table + suffix).encode()) <= limit:
        return table + suffix
    ending = "_" + sha256(table.encode()).hexdigest()[:_DIGEST] + suffix
    return table.encode()[: limit - len(ending)].decode(errors="ignore") + ending


def loads_table_name(table: str, dialect_name: str) -> str:
    """The name of the table that remembers the bulk loads into `table`."""
    return derived_name(table, LOADS, dialect_name)


def load_table_name(table: str, token: str, dialect_name: str) -> str:
    """The name of the table in which the bulk load `token` into `table` waits."""
    return derived_name(table, LOAD + token, dialect_name)


def is_load_table(name: str, table: str, dialect_name: str) -> bool:
    """Whether a table of that name is, or was left behind by, a bulk load into `table`."""
    start = load_table_name(table, "0" * TOKEN_LENGTH, dialect_name)[:-TOKEN_LENGTH]
    return re.fullmatch(re.escape(start) + f"[0-9a-f]{{{TOKEN_LENGTH}}}", name) is not None


def quoted_name(table: Table, dialect: Dialect) -> str:
    """The table's name as the database reads it: SQLAlchemy's own quoting, less its doubling of percent signs."""
    name = dialect.identifier_preparer.format_table(table)
    return name.replace("%%", "%") if dialect.paramstyle in ("format", "pyformat") else name
