"""What a load has done, or would do."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from delaystore.loading.options import OnDuplicate
from delaystore.loading.rejects.counts import Rejects


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load has done.

    `load_id`: None: it was not named, and will not be recognised. `stored`: messages; `skipped`: those that were
    duplicates; None: this store counts neither. `finished_before`: when an earlier run finished this load; then nothing
    was done now, and `stored`, `skipped` and `rejects` are of that run. `rows`: how many the files have now, where an
    earlier run finished this load; None: not counted. `guarantee`: what a store that cannot stage promises;
    None: all or nothing. `seconds`: 0 where the load was asked to stop too late.
    """

    load_id: str | None
    stored: int | None
    skipped: int | None
    rejects: Rejects = field(default_factory=Rejects)
    seconds: float = 0.0
    finished_before: datetime | None = None
    rows: int | None = None
    guarantee: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the files have more rows, or fewer, than the run that finished this load."""
        before = (self.stored or 0) + (self.skipped or 0) + self.rejects.count
        return self.finished_before is not None and self.rows is not None and self.rows != before


class Obstacle(StrEnum):
    """Why a load would fail, and store nothing."""

    REJECTS = "rejects"
    """Rows cannot be messages, and there is no folder for them."""
    TWICE = "twice"
    """A message_id comes twice in the files."""
    WAITING = "waiting"
    """A message_id waits in the store already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a load would do.

    `messages`: rows that can be messages. `twice`: those of them whose id came before in the load; `waiting`: ids that
    wait in the store already, None: this store cannot list them; `examples` of both. `on_duplicate`: what becomes of
    these. `stops_at_rejects`: rows that are rejected have no folder to go to.
    """

    load_id: str | None
    messages: int
    rejects: Rejects
    twice: int
    waiting: int | None
    examples: tuple[str, ...]
    on_duplicate: OnDuplicate
    stops_at_rejects: bool
    seconds: float

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Why the load would fail; none: it would not."""
        found = []
        if self.stops_at_rejects and self.rejects.count:
            found.append(Obstacle.REJECTS)
        if self.on_duplicate is not OnDuplicate.IGNORE and self.twice:
            found.append(Obstacle.TWICE)
        if self.on_duplicate is OnDuplicate.ERROR and self.waiting:
            found.append(Obstacle.WAITING)
        return tuple(found)

    @property
    def would_store(self) -> int:
        """How many messages; an upper bound where `waiting` is None."""
        if self.obstacles:
            return 0
        return self.messages - (self.twice + (self.waiting or 0) if self.on_duplicate is OnDuplicate.IGNORE else 0)
