"""Calls to a store in progress: slow ones are told, those that take too long are ended."""

from delaystore.calls._background import in_background
from delaystore.calls._call import (
    CUT_AFTER,
    SLOW,
    Call,
    CallWatcher,
    Interruptible,
    calls_of,
    current_call,
    elsewhere,
)
from delaystore.calls._question import Question
from delaystore.calls._repeated import Repeated
from delaystore.calls._stop_flag import StopFlag
from delaystore.calls._tasks import TaskCalls

__all__ = [
    "CUT_AFTER",
    "SLOW",
    "Call",
    "CallWatcher",
    "Interruptible",
    "Question",
    "Repeated",
    "StopFlag",
    "TaskCalls",
    "calls_of",
    "current_call",
    "elsewhere",
    "in_background",
]
