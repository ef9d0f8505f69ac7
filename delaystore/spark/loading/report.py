"""What a load has done, or would do."""

from dataclasses import dataclass, field
from datetime import datetime

from delaystore.spark.loading.due import Bar
from delaystore.spark.rejections import Rejections


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load has done.

    `load_id`: None: it was not named, and is not known again. `stored`: messages; `skipped`: those that were
    duplicates; None: this store counts neither. `finished_before`: when an earlier run finished this load; then nothing
    was done now, and `stored` and `skipped` are of that run. `guarantee`: what a store that cannot stage promises;
    None: all or nothing. `seconds`: 0 where the load was asked to stop too late.
    """

    load_id: str | None
    stored: int | None
    skipped: int | None
    rejections: Rejections = field(default_factory=Rejections)
    seconds: float = 0.0
    finished_before: datetime | None = None
    guarantee: str | None = None
    due: tuple[Bar, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a load would do. `waiting`: messages whose id waits in the store; `twice`: those whose id came before in
    the load; examples of both.
    """

    load_id: str | None
    messages: int
    rejections: Rejections
    twice: int
    waiting: int
    examples: tuple[str, ...]
    seconds: float
    finished_before: datetime | None = None
    due: tuple[Bar, ...] = ()
