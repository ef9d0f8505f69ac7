"""A migration that is killed between two commits: SOURCE TARGET RATE PARTS [COMMITS].

It dies when the target has taken PARTS parts of batches, before the source notes the last of them; with COMMITS, after
the source has committed that often since. RATE: messages a second, which makes parts of a batch; 0: no limit.
"""

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import URL, Connection, Engine, event, make_url

from delaystore.message import DelayedMessage
from delaystore.migrations.abc import MigrationBatch, MigrationRun
from delaystore.migrations.runner import RunSettings, run
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.migrations.targets._stores import SqlStoreTarget
from delaystore.transports.abc import Outcome

BATCH_SIZE = 10


class DyingTarget(SqlStoreTarget):
    """Kills the process after so many commits."""

    left: int
    commits: int
    source: URL
    turn = threading.Lock()

    def send_part(
        self, run: MigrationRun, batch: MigrationBatch, part: Mapping[int, DelayedMessage], now: datetime
    ) -> Sequence[Outcome]:
        with self.turn:
            outcomes = super().send_part(run, batch, part, now)
            self.left -= 1
            if not self.left and not self.commits:
                os.kill(os.getpid(), signal.SIGKILL)
            if not self.left:
                event.listen(Engine, "commit", self.die)
            return outcomes

    def die(self, connection: Connection) -> None:
        """Before one commit too many."""
        if connection.engine.url.database == self.source.database:
            if not self.commits:
                os.kill(os.getpid(), signal.SIGKILL)
            self.commits -= 1


def main(source: str, target: str, rate: str, parts: str, commits: str = "0") -> None:
    to_target = open_target(target, "sales")
    assert isinstance(to_target, SqlStoreTarget)
    to_target.__class__ = DyingTarget
    to_target.left, to_target.commits = int(parts), int(commits)  # type: ignore[attr-defined]
    to_target.source = make_url(source)  # type: ignore[attr-defined]
    settings = RunSettings(batch_size=BATCH_SIZE, max_rate=float(rate) or None, allow_rejects=True)
    run(open_source(source), to_target, "sales", settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
