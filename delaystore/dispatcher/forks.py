"""What must be made anew in a forked child: locks another thread may have held, threads that are not there."""

import os
from typing import Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """Something to be told that it now lives in a forked child."""

    def renew_after_fork(self) -> None:
        """Replace locks and forget threads; called in the child before anything else runs."""
        ...


_aware: "WeakSet[ForkAware]" = WeakSet()


def renew_in_children(thing: ForkAware) -> None:
    """Have `thing.renew_after_fork` called in every child forked while it lives."""
    _aware.add(thing)


def _renew() -> None:
    for thing in list(_aware):
        thing.renew_after_fork()


os.register_at_fork(after_in_child=_renew)
