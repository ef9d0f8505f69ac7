"""Which target something is that was given to `enlist`."""

import sys
from importlib import import_module
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

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
        return _on_its_loop(ConnectionTarget(given), lender)
    if isinstance(given, scoped_session):
        return _on_its_loop(SessionTarget(given()), lender)
    if isinstance(given, Session):
        return _on_its_loop(SessionTarget(given), lender)
    wrapper = _wrapper_of(given)
    if wrapper is not None:
        return DjangoTarget(wrapper, lender, lent)
    if not lender.is_async and _is_asynchronous(given):
        raise ConfigurationError(
            f"a {type(given).__name__} belongs to asyncio; enlist it by AsyncDelayedDelivery.enlist"
        )
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
    if lender.is_async:
        raise ConfigurationError(
            "on an event loop enlist takes an AsyncSession of SQLAlchemy, an AsyncConnection that is connected, or a "
            f"psycopg.AsyncConnection, not {type(raw).__name__}"
        )
    raise ConfigurationError(
        "enlist takes a Connection or Session of SQLAlchemy, a connection of psycopg 3, sqlite3 or PyMySQL, or "
        f"Django's connection, not {type(raw).__name__}"
    )


def _on_its_loop(target: Target, lender: Lender) -> Target:
    """`target`, unless a store on an event loop would block that by it."""
    driver = target.connection.dialect
    if lender.is_async and not driver.is_async:
        raise ConfigurationError(
            f"what was enlisted has the driver {driver.driver}, which would block the event loop; enlist an "
            "AsyncConnection or AsyncSession"
        )
    return target


def _wrapper_of(given: Any) -> Any:
    """Django's BaseDatabaseWrapper, which django.db.connection stands for; None: `given` is none of Django's."""
    django: Any = sys.modules.get("django.db")
    if django is None:
        return None
    if isinstance(given, type(django.connection)):
        return django.connections[given.alias]
    return given if isinstance(given, import_module("django.db.backends.base.base").BaseDatabaseWrapper) else None


def _is_asynchronous(given: Any) -> bool:
    for module, names in _ASYNCHRONOUS.items():
        kinds = tuple(kind for name in names if (kind := getattr(sys.modules.get(module), name, None)) is not None)
        if isinstance(given, kinds):
            return True
    return False
