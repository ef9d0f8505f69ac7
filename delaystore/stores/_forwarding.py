"""Methods of a store that are methods of its transactions: each call opens a transaction and makes the call in it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

Q = TypeVar("Q")
P = ParamSpec("P")
R = TypeVar("R")


def in_transaction(
    method: Callable[Concatenate[Any, P], R],
    *,
    of: Callable[[Any], object] | None = None,
    opened_by: str = "transaction",
) -> Callable[Concatenate[Any, P], R]:
    """`method` of what a transaction yields, as a method of the store, with its signature and docstring.

    Args:
        method: The function of the transaction's class, or of `of`.
        of: Makes the object that has `method` of the transaction; None: the transaction has it.
        opened_by: The name of the store's method that opens the transaction of a call.

    """
    name = method.__name__

    @wraps(method)
    def call(self: Any, *arguments: P.args, **named: P.kwargs) -> R:
        with getattr(self, opened_by)() as transaction:
            target = transaction if of is None else of(transaction)
            result: R = getattr(target, name)(*arguments, **named)
        return result

    # a wrapper's `self` could be named in a call, which nobody does
    return cast(Callable[Concatenate[Any, P], R], call)
