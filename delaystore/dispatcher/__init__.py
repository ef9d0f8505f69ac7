"""The dispatcher: fetches due messages, sends them, confirmed, and removes them from the store.

Programs start `dispatcher`; `_loop` and `_passes` do its work, and `_settlement` writes outcomes into the store.
`observer` informs metrics and traces. The transaction that removes a message commits only after its confirm. May be
changed freely: everything but the names in `__all__`; run the chaos tests after a change of in-flight tracking. May
import: the ground, `stores`, `transports`.
"""

from delaystore.breakers import BreakerChange, BreakerState
from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.dispatcher.health import DispatchReport, Health
from delaystore.dispatcher.observer import DispatchObserver, PassDurations, PassReport, Sending, SettledMessages

__all__ = [
    "BreakerChange",
    "BreakerState",
    "DispatchObserver",
    "DispatchReport",
    "Dispatcher",
    "Health",
    "PassDurations",
    "PassReport",
    "Sending",
    "SettledMessages",
]
