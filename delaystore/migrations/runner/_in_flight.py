"""What was being sent when a run stopped, as far as the target can tell."""

from collections.abc import Set

from delaystore.errors import MigrationError
from delaystore.migrations.abc import Batch, BatchStatus, MigrationSource, MigrationTarget, Rejected, Run


def complete_received(source: MigrationSource, target: MigrationTarget | None, run: Run) -> int:
    """Complete the batches in flight of which the target can tell what it has: that must not go back to the source.

    The other rows of such a batch are rejected, to be given back. `target` None: of none of them. Returns how many rows
    the target has, which is none of a dry run's. Raises MigrationError where the run was about another target,
    StoreError.
    """
    if run.parameters.dry_run:
        return 0
    batches = [batch for batch in source.batches(run, BatchStatus.STAGED) if batch.count]
    if batches and target is not None and target.label != run.parameters.target:
        raise MigrationError(
            f"the run of {run.parameters.endpoint!r} moved to {run.parameters.target}, not to {target.label}; "
            "name the first, which may have received what was in flight"
        )
    total = 0
    for batch in batches:
        received = None if target is None else target.received(run, batch)
        if received is not None:
            source.complete(run, batch, _others(source, run, batch, received))
            total += len(received)
    return total


def received_in_flight(source: MigrationSource, target: MigrationTarget, run: Run) -> int:
    """How many rows of batches in flight the target has. Completes nothing. Raises StoreError."""
    return sum(len(target.received(run, batch) or ()) for batch in source.batches(run, BatchStatus.STAGED))


def _others(source: MigrationSource, run: Run, batch: Batch, received: Set[int]) -> list[Rejected]:
    """The rows of a batch in flight that the target has not received."""
    return [
        row if isinstance(row, Rejected) else Rejected(row.row_id, "not sent when the run was aborted")
        for position, row in enumerate(source.stage(run, batch))
        if position not in received
    ]
