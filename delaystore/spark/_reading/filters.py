"""Which of Spark's filters a database can apply, and as what."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from sqlalchemy import ColumnElement, FromClause, not_, or_

from delaystore.sql.columns import COLUMNS
from delaystore.sql.types import ExactText, UtcDateTime

MAX_VALUES: Final = 200
"""A longer list is left to Spark."""
_OPERATORS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "eq",
    EqualNullSafe: "eq",  # our columns that are compared are never null
    GreaterThan: "gt",
    GreaterThanOrEqual: "ge",
    LessThan: "lt",
    LessThanOrEqual: "le",
}
_TIMES: Final = {column.name for column in COLUMNS if isinstance(column.type, UtcDateTime)}
_TEXTS: Final = {column.name for column in COLUMNS if isinstance(column.type, ExactText)}
_NULLABLE: Final = {column.name for column in COLUMNS if column.nullable}


@dataclass(frozen=True)
class Condition:
    """A column compared with any of `values` by a function of the module `operator`, or "null"; `negated`: not so."""

    column: str
    operator: str
    values: tuple[Any, ...] = ()
    negated: bool = False


def condition_of(given: Filter) -> Condition | None:
    """`given` as a condition. None: it is left to Spark."""
    if isinstance(given, Not):
        inner = condition_of(given.child)
        if inner is None or inner.negated or (isinstance(given.child, In) and None in given.child.value):
            return None  # with a null in its list NOT IN is never true
        return Condition(inner.column, inner.operator, inner.values, negated=True)
    if isinstance(given, IsNull | IsNotNull):
        return _null_condition(given)
    if isinstance(given, In):
        return _comparison(given.attribute, "eq", tuple(value for value in given.value if value is not None))
    name = _OPERATORS.get(type(given))
    return None if name is None else _comparison(given.attribute, name, (given.value,))  # type: ignore[attr-defined]


def clauses(source: FromClause, conditions: Iterable[Condition]) -> Sequence[ColumnElement[bool]]:
    """The conditions on the columns of `source`, all of which must hold."""
    return [_clause(source, condition) for condition in conditions]


def _clause(source: FromClause, condition: Condition) -> ColumnElement[bool]:
    column = source.c[condition.column]
    if condition.operator == "null":
        return column.is_not(None) if condition.negated else column.is_(None)
    compare = getattr(operator, condition.operator)
    clause = or_(*(compare(column, value) for value in condition.values))
    return not_(clause) if condition.negated else clause


def _null_condition(given: IsNull | IsNotNull) -> Condition | None:
    (column,) = given.attribute if len(given.attribute) == 1 else ("",)
    return Condition(column, "null", negated=isinstance(given, IsNotNull)) if column in _NULLABLE else None


def _comparison(attribute: tuple[str, ...], name: str, values: tuple[Any, ...]) -> Condition | None:
    if len(attribute) != 1 or not 1 <= len(values) <= MAX_VALUES:
        return None
    (column,) = attribute
    usable = [_usable(column, value) for value in values]
    return None if None in usable else Condition(column, name, tuple(usable))


def _usable(column: str, value: Any) -> Any:
    """`value` as databases compare it with that column; None: they cannot, or not as Spark does."""
    if column in _TEXTS and type(value) is str and "\0" not in value:
        return value
    if column in _TIMES and isinstance(value, datetime) and value.utcoffset() is not None:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            return None
    return None
