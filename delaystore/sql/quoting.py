"""Quoted names, and statements that are executed unchanged."""

from sqlalchemy import Connection, Dialect, Table, TextClause, text


def quoted_name(table: Table, dialect: Dialect) -> str:
    """The table's name: SQLAlchemy's own quoting, less its doubling of percent signs."""
    return _plain(dialect.identifier_preparer.format_table(table), dialect)


def quoted_column(name: str, dialect: Dialect) -> str:
    """A column's name, quoted in any case."""
    return _plain(dialect.identifier_preparer.quote_identifier(name), dialect)


def as_it_stands(statement: str) -> TextClause:
    """`statement` to be executed unchanged."""
    return text(escaped(statement))


def escaped(name: str) -> str:
    """A quoted name, or any part of a statement, whose colons begin no parameters."""
    return name.replace(":", r"\:")


def execute_as_it_stands(connection: Connection, statement: str) -> None:
    """Execute `statement` unchanged."""
    connection.execute(as_it_stands(statement))


def _plain(quoted: str, dialect: Dialect) -> str:
    return quoted.replace("%%", "%") if dialect.paramstyle in ("format", "pyformat") else quoted
