"""Parking what is due at paused destinations, and showing it, and what a limit had postponed, again."""

import heapq
from datetime import datetime, timedelta

from delaystore.message import PARKED, position_of
from delaystore.stores.memory._destinations import parked, shown
from delaystore.stores.memory._waiting import WaitingMessages


def park(waiting: WaitingMessages, until: datetime, at_most: int, now: datetime) -> int:
    """Park the first free messages; returns how many."""
    due = [
        entry.message
        for entry in waiting.entries.values()
        if entry.message.next_attempt <= until
        and entry.message.next_attempt < PARKED
        and waiting.destinations.is_paused(entry.message.destination, now)
        and not entry.is_claimed(now)
    ]
    for message in (some := heapq.nsmallest(at_most, due, key=position_of)):
        waiting.change(message.message_id, parked(message))
    return len(some)


def unpark(waiting: WaitingMessages, at_most: int, ahead: timedelta | None, now: datetime) -> int:
    """Show the first parked messages whose destination is not paused, then postponed ones; returns how many."""
    waiting.destinations.end_pauses(now)
    entries = [waiting.entries[message_id] for message_id in waiting.parked]
    free = [
        entry.message
        for entry in entries
        if not waiting.destinations.is_paused(entry.message.destination, now) and not entry.is_claimed(now)
    ]
    if not free and ahead is not None and any(each.resuming for each in waiting.destinations.all(now)):
        free = [
            entry.message
            for entry in waiting.entries.values()
            if waiting.destinations.is_to_be_shown(entry.message, ahead, now) and not entry.is_claimed(now)
        ]
    for message in (some := heapq.nsmallest(at_most, free, key=lambda each: (each.due_time, each.message_id))):
        waiting.change(message.message_id, shown(message))
    if not some:
        waiting.destinations.end_resuming(postponed=ahead is not None)
    return len(some)
