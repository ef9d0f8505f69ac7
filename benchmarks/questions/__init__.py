"""One module a question."""

from collections.abc import Sequence
from typing import Final

from benchmarks.questions import (
    delays_migrate,
    dispatch_bare,
    dispatch_millions,
    dispatch_msmq,
    dispatch_old_snapshot,
    lateness_burst,
    lateness_millions,
    lateness_waiting,
    load_copy,
    load_millions,
    lookup_millions,
    lookup_millions_time,
    memory,
    migrate_bare,
    migrate_memory,
    migrate_row_by_row,
    native_celery,
    native_lateness,
    native_publish,
    read_jdbc,
    send,
    send_far_millions,
    send_keys,
    send_near_millions,
    store_many,
    store_many_millions,
)
from benchmarks.results import Question

QUESTIONS: Final[Sequence[Question]] = (
    dispatch_msmq.QUESTION,
    dispatch_bare.QUESTION,
    send.QUESTION,
    send_keys.QUESTION,
    store_many.QUESTION,
    lateness_waiting.QUESTION,
    lateness_burst.QUESTION,
    dispatch_old_snapshot.QUESTION,
    dispatch_millions.QUESTION,
    lateness_millions.QUESTION,
    send_far_millions.QUESTION,
    send_near_millions.QUESTION,
    store_many_millions.QUESTION,
    lookup_millions.QUESTION,
    lookup_millions_time.QUESTION,
    memory.QUESTION,
    native_publish.QUESTION,
    native_celery.QUESTION,
    native_lateness.QUESTION,
    delays_migrate.QUESTION,
    migrate_row_by_row.QUESTION,
    migrate_bare.QUESTION,
    migrate_memory.QUESTION,
    load_millions.QUESTION,
    load_copy.QUESTION,
    read_jdbc.QUESTION,
)
"""In the order in which they are asked."""
