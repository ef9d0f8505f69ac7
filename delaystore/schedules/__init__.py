"""Recurring schedules: cron expressions and intervals.

`rules` computes when a schedule is due, without I/O. May be changed freely: everything but the daylight saving rules,
by which stored schedules run. May import: the ground, `stores`, `transports`.
"""

__all__: list[str] = []
