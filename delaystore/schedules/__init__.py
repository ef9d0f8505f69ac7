"""Recurring schedules, which make ordinary messages.

`rules` computes times, `definition` has one schedule, `making` makes occurrences of rows that are locked, and `service`
has the class behind `DelayedDelivery.schedules`. The contract of the rows is in `delaystore.stores.schedules`.
May be changed freely: everything but the names below, the ids and headers of occurrences, and what rows hold.
May import: the ground, `stores`.
"""

from delaystore.schedules.definition import CatchUp, IfWaiting, Schedule
from delaystore.schedules.editing import ScheduleChanges
from delaystore.schedules.service import PutResult, Schedules, ScheduleState

__all__ = ["CatchUp", "IfWaiting", "PutResult", "Schedule", "ScheduleChanges", "ScheduleState", "Schedules"]
