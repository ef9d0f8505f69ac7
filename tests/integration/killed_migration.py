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
from delaystore.migrations.abc import MigrationBatch, MigrationRun, MigrationTarget
from delaystore.migrations.runner import RunSettings, run
from delaystore.migrations.sources import open_source
from delaystore.migrations.targets import open_target
from delaystore.transports.abc import Outcome

BATCH_SIZE = 10


class Death:
    """Kills the process after so many parts and commits."""

    def __init__(self, target: MigrationTarget, source: URL, parts: int, commits: int) -> None:
        self._send_part = target.send_part
        self._source = source
        self._left = parts
        self._commits = commits
        self._turn = threading.Lock()

    def send_part(
        self, run: MigrationRun, batch: MigrationBatch, part: Mapping[int, DelayedMessage], now: datetime
    ) -> Sequence[Outcome]:
        """In place of the target's."""
        with self._turn:
            outcomes = self._send_part(run, batch, part, now)
            self._left -= 1
            if not self._left and not self._commits:
                os.kill(os.getpid(), signal.SIGKILL)
            if not self._left:
                event.listen(Engine, "commit", self.die)
            return outcomes

    def die(self, connection: Connection) -> None:
        """Before one commit too many."""
        if connection.engine.url.database == self._source.database:
            if not self._commits:
                os.kill(os.getpid(), signal.SIGKILL)
            self._commits -= 1


def main(source: str, target: str, rate: str, parts: str, commits: str = "0") -> None:
    to_target = open_target(target, "sales")
    death = Death(to_target, make_url(source), int(parts), int(commits))
    to_target.send_part = death.send_part  # type: ignore[method-assign]
    settings = RunSettings(batch_size=BATCH_SIZE, max_rate=float(rate) or None, allow_rejects=True)
    run(open_source(source), to_target, "sales", settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
