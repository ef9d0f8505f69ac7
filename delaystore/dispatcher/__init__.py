"""Forwarding what is due."""

from delaystore.dispatcher.dispatcher import Dispatcher
from delaystore.dispatcher.health import DispatchReport, Health

__all__ = ["DispatchReport", "Dispatcher", "Health"]
