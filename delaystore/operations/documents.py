"""What operators see, as JSON documents: times in ISO 8601 (UTC), durations in seconds. Their keys are stable."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from delaystore.filters import MessageFilter
from delaystore.lateness import LatenessHistogram

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PERCENTILES = (50, 90, 99)


def document(record: "DataclassInstance") -> dict[str, Any]:
    """A record of the contract, such as an Operation, a Destination, a DispatcherRecord or an AuditEntry."""
    return {each.name: plain(getattr(record, each.name)) for each in fields(record)}


def plain(value: object) -> Any:
    """A value of such a record as JSON has it."""
    if isinstance(value, MessageFilter):
        return value.as_dict()
    if isinstance(value, LatenessHistogram):
        return percentiles(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return document(value) if is_dataclass(value) and not isinstance(value, type) else value


def percentiles(lateness: LatenessHistogram) -> dict[str, float | None]:
    """How late messages arrived, in seconds: p50, p90 and p99; None: nothing was delivered."""
    return {f"p{percent}": lateness.percentile(percent) for percent in _PERCENTILES}
