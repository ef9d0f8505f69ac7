"""Methods of the synchronous classes, to be awaited."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """`method` of the synchronous class, with its signature and its words, to be awaited."""

    @wraps(method)
    async def call(self: Any, *arguments: P.args, **named: P.kwargs) -> R:
        result: R = await self._call(method, *arguments, **named)
        return result

    # a wrapper's `self` could be named in a call, which nobody does
    return cast(Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], call)
