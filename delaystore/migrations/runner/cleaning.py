"""Dropping a run's tables, once everything is known to be where it belongs."""

from delaystore.errors import MigrationError
from delaystore.migrations.abc import MigrationSource, MigrationTarget
from delaystore.migrations.runner.holder import this_process
from delaystore.migrations.runner.verifying import Verdict, verify


def clean_up(source: MigrationSource, target: MigrationTarget, endpoint: str, *, force: bool = False) -> Verdict:
    """Drop the run's tables. What is in them is gone then: the record of what was moved, and what was rejected.

    Refuses while anything is pending, which is nowhere else, and, without `force`, where `verify` does not pass or
    rows were rejected. Raises MigrationLockedError, MigrationError for a refusal or where there was no run, StoreError.
    """
    with source.lock(endpoint, this_process()):
        verdict = verify(source, target, endpoint)
        counts = verdict.counts
        if counts.pending:
            raise MigrationError(
                f"{counts.pending:,} of {endpoint!r} have neither moved nor gone back, and would be lost; run it "
                "again, or abort it first"
            )
        if not force and verdict.findings:
            raise MigrationError(f"nothing was cleaned up: {verdict.findings[0]}; --force does it all the same")
        if not force and counts.rejected:
            raise MigrationError(
                f"nothing was cleaned up: {counts.rejected:,} rejected of {endpoint!r} are nowhere else; abort gives "
                "them back, --force deletes them"
            )
        source.clean_up(verdict.run)
        return verdict
