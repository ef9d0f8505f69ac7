"""A file into a store by this process alone, without Spark: all of it or nothing."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa

from delaystore.errors import DelaystoreError, LoadError
from delaystore.loading.attempts import stage
from delaystore.loading.conversion.planning import plan_conversion
from delaystore.loading.promoting import promote
from delaystore.loading.reading.rows import Rows, read_rows
from delaystore.loading.rejects.counts import MAX_EXAMPLES, Rejects, count_rejects
from delaystore.loading.rejects.folder import RejectFolder, kept_rejects, reject_folder
from delaystore.loading.report import DryRun, LoadReport
from delaystore.loading.request import LoadRequest
from delaystore.loading.staging import LoadKey, LoadStore, Owner, Staging
from delaystore.message import new_message_id

Watch = Callable[[int], bool]
"""Is told how many rows were read. True: stop."""


class DirectLoad:
    """A file of a request, whose columns can be messages, into an open store. `watch` is asked after each batch.

    Raises ConfigurationError for a file or options that cannot work.
    """

    def __init__(self, request: LoadRequest, store: LoadStore, watch: Watch) -> None:
        (path,) = request.files.local
        self._request, self._store = request, store
        self._watch = watch
        self._rows: Rows = read_rows(path, request.files.kind, request.mapping)
        self._conversion = plan_conversion(self._rows.columns, request.given, datetime.now(UTC))

    def run(self) -> LoadReport:
        """Store the messages. LoadError if it was stopped; RejectedRowsError, DuplicateMessageError and their kin."""
        clock, given = time.monotonic(), self._request.given
        key = LoadKey(self._request.load_id)
        folder = reject_folder(given, key, run=new_message_id())
        staging = self._store.staging(given.lease_seconds, Owner.of(os.getpid()))
        try:
            finished = staging.begin(key)
            if finished is None:
                attempt = stage(self._batches(), self._conversion, staging, folder)
                rejects, finished = attempt.rejects, promote([attempt], staging, folder, given.on_duplicate)
            else:
                rejects = kept_rejects(self._request.load_id, given)
        except Exception:
            _give_up(staging, folder)
            raise
        return LoadReport(
            load_id=given.load_id,
            stored=finished.stored,
            skipped=finished.skipped,
            rejects=rejects,
            seconds=time.monotonic() - clock,
            guarantee=None if staging.remembers else staging.guarantee,
        )

    def dry_run(self, *, stored: bool) -> DryRun:
        """What `run` would do; it writes nothing. `stored`: whether to look for duplicates in the store, too."""
        clock, given = time.monotonic(), self._request.given
        ids: Counter[str] = Counter()
        rejects = Rejects()
        for batch in self._batches():
            converted = self._conversion.convert(batch)
            rejects += count_rejects(converted.rejected)
            ids.update(converted.staged.column("message_id").to_pylist())
        twice = sorted(name for name, count in ids.items() if count > 1)
        waiting = self._store.waiting_ids(ids) if stored else set[str]()
        examples = [*twice[:MAX_EXAMPLES], *sorted(waiting or ())[:MAX_EXAMPLES]]
        return DryRun(
            load_id=given.load_id,
            messages=ids.total(),
            rejects=rejects,
            twice=ids.total() - len(ids),
            waiting=None if waiting is None else len(waiting),
            examples=tuple(dict.fromkeys(examples)),
            on_duplicate=given.on_duplicate,
            stops_at_rejects=given.rejects is None,
            seconds=time.monotonic() - clock,
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in self._rows.batches():
            yield batch
            done += batch.num_rows
            self._go_on(done)

    def _go_on(self, done: int) -> None:
        if self._watch(done):
            raise LoadError("the load was stopped")


def _give_up(staging: Staging, rejects: RejectFolder | None) -> None:
    """Remove what a load that failed has left; what cannot be removed now is left to the next one."""
    with suppress(DelaystoreError):
        if rejects is not None:
            rejects.remove_pending()
    with suppress(DelaystoreError):
        staging.discard()
