"""One module a question."""

from collections.abc import Sequence
from typing import Final

from benchmarks.questions import (
    delays_migrate,
    dispatch_bare,
    dispatch_msmq,
    dispatch_old_snapshot,
    dispatch_waiting,
    lateness_burst,
    lateness_waiting,
    load_copy,
    load_jdbc,
    memory,
    migrate_bare,
    migrate_memory,
    migrate_row_by_row,
    native_celery,
    native_lateness,
    native_publish,
    read_jdbc,
    send,
    store_many,
)
from benchmarks.results import Question

QUESTIONS: Final[Sequence[Question]] = (
    dispatch_msmq.QUESTION,
    dispatch_bare.QUESTION,
    send.QUESTION,
    store_many.QUESTION,
    lateness_waiting.QUESTION,
    lateness_burst.QUESTION,
    dispatch_waiting.QUESTION,
    dispatch_old_snapshot.QUESTION,
    memory.QUESTION,
    native_publish.QUESTION,
    native_celery.QUESTION,
    native_lateness.QUESTION,
    delays_migrate.QUESTION,
    migrate_row_by_row.QUESTION,
    migrate_bare.QUESTION,
    migrate_memory.QUESTION,
    load_jdbc.QUESTION,
    load_copy.QUESTION,
    read_jdbc.QUESTION,
)
"""In the order in which they are asked."""
