"""Which target something is that was given to `enlist`."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from sqlalchemy import Connection

from delaystore.errors import ConfigurationError
from delaystore.stores.sql.targets._django import DjangoTarget
from delaystore.stores.sql.targets._sqlalchemy import ConnectionTarget, SessionTarget
from delaystore.stores.sql.targets.abc import Target
from delaystore.stores.sql.targets.driver import Lender, Loan, LoanTarget

_LOANS: Final = {
    "psycopg": ("_psycopg", ("PsycopgLoan", "AsyncPsycopgLoan")),
    "sqlite3": ("_sqlite3", ("SqliteLoan",)),
    "pymysql": ("_pymysql", ("PyMySqlLoan",)),
}
"""By the package of the driver: where its loans are. A module is imported once somebody has such a connection."""
_TAKEN: Final = (
    "a Connection or Session of SQLAlchemy, a connection of psycopg 3, sqlite3 or PyMySQL, or Django's connection"
)
_TAKEN_ON_A_LOOP: Final = "an AsyncConnection or AsyncSession of SQLAlchemy, or an AsyncConnection of psycopg 3"
_ORM: Final = "sqlalchemy.orm"
"""Not imported here: it loads slowly, and only programs that have imported it have a Session."""
_ASYNCHRONOUS: Final = {
    "sqlalchemy.ext.asyncio": ("AsyncConnection", "AsyncSession", "async_scoped_session"),
    "psycopg": ("AsyncConnection",),
    "aiosqlite": ("Connection",),
    "asyncpg": ("Connection",),
}


def target_of(given: Any, lender: Lender) -> Target:
    """The transaction of `given`; raises ConfigurationError for what has none that a store can take part in."""
    if isinstance(given, Target):
        return given
    if isinstance(given, Connection):
        return ConnectionTarget(given)
    if _is_of_orm(given, "scoped_session"):
        return SessionTarget(given())
    if _is_of_orm(given, "Session"):
        return SessionTarget(given)
    wrapper = _wrapper_of(given)
    if wrapper is not None:
        return DjangoTarget(wrapper, lender, lent)
    if not lender.is_async and _is_asynchronous(given):
        raise ConfigurationError(
            f"a {type(given).__name__} belongs to asyncio; enlist it by AsyncDelayedDelivery.enlist"
        )
    if isinstance(given, _kinds("sqlalchemy.ext.asyncio", ("AsyncConnection",))):
        raise ConfigurationError("the AsyncConnection has not been started; await it first, or use `async with`")
    return lent(given, lender)


def lent(raw: Any, lender: Lender) -> LoanTarget:
    """The transaction of a driver's connection; raises ConfigurationError for anything else."""
    for base in type(raw).__mro__:
        place = _LOANS.get(base.__module__.partition(".")[0])
        module, names = place or ("", ())
        for name in names:
            loan: Any = getattr(import_module(f"{__package__}.{module}"), name)
            if isinstance(raw, loan.taken):
                made: Loan = loan(raw)
                return LoanTarget(lender, made)
    takes = _TAKEN_ON_A_LOOP if lender.is_async else _TAKEN
    raise ConfigurationError(f"enlist takes {takes}, not {type(raw).__name__}")


def _wrapper_of(given: Any) -> Any:
    """Django's BaseDatabaseWrapper, which django.db.connection stands for; None: `given` is none of Django's."""
    django: Any = sys.modules.get("django.db")
    if django is None:
        return None
    if isinstance(given, type(django.connection)):
        return django.connections[given.alias]
    return given if isinstance(given, import_module("django.db.backends.base.base").BaseDatabaseWrapper) else None


def _is_of_orm(given: Any, name: str) -> bool:
    return isinstance(given, _kinds(_ORM, (name,)))


def _is_asynchronous(given: Any) -> bool:
    return any(isinstance(given, _kinds(module, names)) for module, names in _ASYNCHRONOUS.items())


def _kinds(module: str, names: Sequence[str]) -> tuple[type, ...]:
    """The classes of a module; none where nobody has imported it."""
    return tuple(kind for name in names if (kind := getattr(sys.modules.get(module), name, None)) is not None)
