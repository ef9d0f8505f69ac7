"""Of which ingresses a store tells."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from delaystore.stores.operable import GONE_FOR, IngressRecord


def told_of(records: Iterable[IngressRecord], now: datetime) -> Sequence[IngressRecord]:
    """Those that live, and for each queue that has none any more the one that died last; by queue and id."""
    living: list[IngressRecord] = []
    gone: dict[str, IngressRecord] = {}
    for each in sorted(records, key=lambda each: each.beat):
        if not each.is_gone(now):
            living.append(each)
        elif now - each.beat <= GONE_FOR:
            gone[each.queue] = each
    served = {each.queue for each in living}
    died = [each for each in gone.values() if each.queue not in served]
    return sorted(living + died, key=lambda each: (each.queue, each.ingress_id))
