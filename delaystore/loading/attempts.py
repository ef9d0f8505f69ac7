"""What one attempt at rows does, and what it reports: a task of Spark's, or the whole of a load without it."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import pyarrow as pa

from delaystore.loading.conversion.batches import Conversion
from delaystore.loading.rejects.counts import Rejects, count_rejects
from delaystore.loading.rejects.folder import RejectFolder
from delaystore.loading.staging.abc import StagedAttempt, Staging


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """What an attempt has done.

    `staged`: None: the load was finished before. `reject_file`: the name of its file of rejected rows;
    None: it wrote none.
    """

    staged: StagedAttempt | None = None
    rejects: Rejects = field(default_factory=Rejects)
    reject_file: str | None = None


def stage(
    batches: Iterator[pa.RecordBatch], conversion: Conversion, staging: Staging, folder: RejectFolder | None
) -> AttemptReport:
    """Stage what `batches` hold. Without a folder for rejects, rows after the first reject are only checked."""
    with nullcontext() if folder is None else folder.file() as file, staging.attempt() as sink:
        rejects = Rejects()
        for batch in batches:
            converted = conversion.convert(batch)
            rejects += count_rejects(converted.rejected)
            if file is not None and converted.rejected is not None:
                file.write(converted.rejected)
            if file is not None or not rejects.count:
                sink.write(converted.staged)
        staged = sink.finish()
        if file is not None and rejects.count:
            staging.renew()  # an attempt that outlives its load must not leave a file behind
        return AttemptReport(staged, rejects, None if file is None else file.close())
