"""Arguments that every operable store refuses alike."""

from delaystore.errors import ConfigurationError
from delaystore.stores.operable import Operation


def check_number(number: int, name: str) -> None:
    """Raise ConfigurationError, which calls it `name`, unless `number` is a whole number from 1."""
    if type(number) is not int or number < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1, not {number!r}")


def check_new(operation: Operation) -> None:
    """Raise ConfigurationError unless `operation` is as before its first step."""
    if operation != new(operation):
        raise ConfigurationError(f"the operation {operation.operation_id!r} has begun already; begin a new one")


def taken(operation: Operation) -> ConfigurationError:
    """What is raised where there is one of that id."""
    return ConfigurationError(f"there is an operation {operation.operation_id!r} already; give each an id")


def new(operation: Operation) -> Operation:
    """`operation` as it is before its first step."""
    return Operation(
        operation_id=operation.operation_id,
        kind=operation.kind,
        wanted=operation.wanted,
        by=operation.by,
        began=operation.began,
        due_time=operation.due_time,
    )
