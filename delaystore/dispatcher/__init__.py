"""Forwarding what is due."""

from delaystore.dispatcher.breakers import BreakerChange, BreakerState
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
