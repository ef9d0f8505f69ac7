"""Whether the disk has room for millions."""

import shutil

import pytest

from benchmarks.arena import Arena

OVERHEAD = 230  # bytes of a row and its index entries beside the body, as measured
SORTING = 60  # bytes of a row while the larger index is made
BESIDES = 2_000_000_000  # the log, the broker, and what comes and goes
GIGABYTE = 1_000_000_000


def need_disk_for(arena: Arena, waiting: int, body_bytes: int) -> None:
    """Skip the test if so many do not fit beside what is there."""
    needed = waiting * (body_bytes + OVERHEAD + SORTING) + BESIDES
    place = arena.postgresql.directory
    free = shutil.disk_usage(place).free
    if free < needed:
        pytest.skip(
            f"{waiting:,} waiting need {needed / GIGABYTE:.0f} GB where {place} is, and {free / GIGABYTE:.0f} GB are "
            "free; set TMPDIR to a larger disk"
        )
