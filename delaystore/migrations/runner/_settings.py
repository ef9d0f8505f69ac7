"""How a run is to go."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from delaystore.errors import ConfigurationError, MigrationError
from delaystore.migrations.abc import MigrationTarget, RunParameters

DEFAULT_BATCH_SIZE: Final = 1000
_LARGEST_BATCH: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run is to go.

    `cutoff`: only what is due then or later moves; None: everything. `batch_size`: rows in a batch; None: 1000, or that
    of the run that is resumed. `max_rate`: messages a second; None: no limit. `allow_rejects`: begin, and go on,
    although rows are rejected; without it the run stops at the first. `max_rejects`: the run stops when more rows are
    rejected; None: as `allow_rejects` says. `patience`: how long the target may take nothing.

    Raises ConfigurationError at construction.
    """

    cutoff: datetime | None = None
    batch_size: int | None = None
    max_rate: float | None = None
    max_rejects: int | None = None
    allow_rejects: bool = False
    patience: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if self.cutoff is not None and self.cutoff.utcoffset() is None:
            raise ConfigurationError("the cut-off must be an aware datetime, such as datetime.now(UTC)")
        if self.batch_size is not None and not 1 <= self.batch_size <= _LARGEST_BATCH:
            raise ConfigurationError(f"the batch size must be from 1 to {_LARGEST_BATCH:,}, not {self.batch_size}")
        if self.max_rate is not None and not (math.isfinite(self.max_rate) and self.max_rate > 0):
            raise ConfigurationError(f"the maximum rate must be above 0 messages a second, not {self.max_rate}")
        if self.max_rejects is not None and self.max_rejects < 0:
            raise ConfigurationError(f"the most rejected rows must be 0 or more, not {self.max_rejects}")
        if self.patience < timedelta(0):
            raise ConfigurationError(f"the patience must not be negative, as {self.patience} is")

    @property
    def most_rejects(self) -> int | None:
        """How many rows the run may reject before it stops; None: any number."""
        if self.max_rejects is None and not self.allow_rejects:
            return 0
        return self.max_rejects

    def parameters(self, endpoint: str, target: MigrationTarget, of_unfinished: RunParameters | None) -> RunParameters:
        """The run's parameters. Raises MigrationError where the unfinished run has others."""
        before = None if of_unfinished is None else of_unfinished.batch_size
        wanted = RunParameters(
            endpoint=endpoint,
            target=target.label,
            cutoff=None if self.cutoff is None else self.cutoff.astimezone(UTC),
            batch_size=self.batch_size or before or DEFAULT_BATCH_SIZE,
        )
        if of_unfinished is not None:
            _check_unchanged(of_unfinished, wanted)
        return wanted


def _check_unchanged(begun: RunParameters, wanted: RunParameters) -> None:
    for name, was, is_now in (
        ("target", begun.target, wanted.target),
        ("cut-off", _text(begun.cutoff), _text(wanted.cutoff)),
        ("batch size", str(begun.batch_size), str(wanted.batch_size)),
    ):
        if was != is_now:
            raise MigrationError(
                f"the unfinished run of {begun.endpoint!r} has the {name} {was}, not {is_now}; run it again with the "
                "same to go on, or abort it first"
            )


def _text(cutoff: datetime | None) -> str:
    return "none" if cutoff is None else cutoff.astimezone(UTC).isoformat()
