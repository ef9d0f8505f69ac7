"""Spark's types as those that rows are planned by."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import types as spark

from delaystore.loading import columns as ours

_SIMPLE: Final[Sequence[tuple[type[spark.DataType], type[ours.DataType]]]] = (
    (spark.NullType, ours.NullType),
    (spark.BooleanType, ours.BooleanType),
    (spark.IntegralType, ours.IntegralType),
    (spark.DecimalType, ours.DecimalType),
    (spark.FractionalType, ours.FractionalType),
    (spark.StringType, ours.StringType),
    (spark.BinaryType, ours.BinaryType),
    (spark.TimestampType, ours.TimestampType),
    (spark.TimestampNTZType, ours.TimestampNTZType),
    (spark.DateType, ours.DateType),
    (spark.TimeType, ours.TimeType),
    (spark.DayTimeIntervalType, ours.DayTimeIntervalType),
)


def fields_of(kind: spark.StructType) -> Sequence[ours.Field]:
    """The columns of a schema."""
    return tuple(ours.Field(field.name, _type_of(field.dataType)) for field in kind.fields)


def _type_of(kind: spark.DataType) -> ours.DataType:
    name = kind.simpleString()
    if isinstance(kind, spark.StructType):
        return ours.StructType(name, fields_of(kind))
    if isinstance(kind, spark.ArrayType):
        return ours.ArrayType(name, _type_of(kind.elementType))
    if isinstance(kind, spark.MapType):
        return ours.MapType(name, _type_of(kind.keyType), _type_of(kind.valueType))
    return next((made for theirs, made in _SIMPLE if isinstance(kind, theirs)), ours.DataType)(name)
