"""Requests about single messages, done in one transaction, and noted."""

from collections.abc import Sequence

from delaystore.operations._access import Access
from delaystore.operations.requests import MessageRequest, RequestResult
from delaystore.stores.abc import ManagedDelayedMessageStore


def do_all(access: Access, requests: Sequence[MessageRequest], most_bytes: int) -> Sequence[RequestResult]:
    """The results of the first of `requests`: of all, unless what was looked up has more than `most_bytes` bytes."""
    store = access.operable()
    results: list[RequestResult] = []
    size = 0
    with access.call("doing what was asked about messages"), store.transaction() as transaction:
        # a store without transactions, and the one in memory, change messages one by one
        bound = transaction if isinstance(transaction, ManagedDelayedMessageStore) else store
        for request in requests:
            result = request.do(bound)
            results.append(result)
            size += 0 if result.message is None else len(result.message.body)
            if size >= most_bytes:
                break
    due_times = [result.due_time for result in results if result.due_time is not None]
    if due_times:
        access.wake_up(min(due_times))
    access.note_all([result.change for result in results if result.change is not None])
    return results
