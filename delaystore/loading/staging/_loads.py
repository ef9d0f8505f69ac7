"""What is known of loads."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class LoadState(StrEnum):
    """How far a load is."""

    RUNNING = "running"
    ABANDONED = "abandoned"
    """Its lease has ended, or its process has; the next load, or a cleanup, removes what it left."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStatus:
    """A load as the registry has it.

    `batch`, `finished_at`, `stored`, `skipped`: of a stream, those of the last finished batch. `host` and `pid`: of
    the process that runs or ran it; `heartbeat`: its last sign of life.
    """

    load_id: str
    state: LoadState
    batch: int | None
    host: str
    pid: int
    began: datetime
    heartbeat: datetime
    finished_at: datetime | None
    stored: int | None
    skipped: int | None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleanup did.

    `loads`: abandoned ones, now forgotten. `tables`: dropped. `in_use`: tables that a process still works on, which the
    next cleanup will find.
    """

    loads: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()
