"""The buckets that due times are counted by: spans of equal length, numbered from 1970-01-01 UTC, also backwards."""

from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.errors import ConfigurationError

LONGEST: Final = timedelta(days=4_000_000)
"""Longer than all times there are."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


def seconds_of(bucket: timedelta) -> int:
    """The length of a bucket in seconds; raises ConfigurationError for one that is not whole, or too long."""
    if not timedelta(seconds=1) <= bucket <= LONGEST or bucket.microseconds:
        raise ConfigurationError(f"bucket must be a whole number of seconds, from 1 to {LONGEST}, not {bucket!r}")
    return int(bucket.total_seconds())


def number_of(instant: datetime, bucket: timedelta) -> int:
    """The number of the bucket that `instant` falls into."""
    return (instant - _EPOCH) // bucket


def start_of(number: int, bucket: timedelta) -> datetime:
    """When a bucket starts, or the first time there is."""
    try:
        return _EPOCH + number * bucket
    except OverflowError:
        return _FIRST
