"""Hypothesis strategies for messages."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from hypothesis import strategies as st

from delaystore.message import LATEST_DUE_TIME, PROPERTY_RANGES, PROPERTY_TYPES, DelayedMessage

_EARLIEST: Final = datetime(1, 1, 2)  # noqa: DTZ001 - hypothesis takes naive bounds
_LATEST: Final = LATEST_DUE_TIME.replace(tzinfo=None)
_ZONES: Final = st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30)), timezone(timedelta(hours=14))])


def instants() -> st.SearchStrategy[datetime]:
    """Aware datetimes that every message may hold."""
    return st.datetimes(_EARLIEST, _LATEST - timedelta(days=1), timezones=_ZONES)


def texts(max_bytes: int) -> st.SearchStrategy[str]:
    """Texts that may be a message_id: not empty, without NUL, at most `max_bytes` of UTF-8."""
    return _short(st.characters(codec="utf-8", exclude_characters="\0"), max_bytes)


def queue_names(max_bytes: int) -> st.SearchStrategy[str]:
    """As `texts`, but without control characters: texts that may be a destination, and no address."""
    names = _short(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_bytes)
    return names.filter(lambda text: not text.startswith("/"))


def _short(characters: st.SearchStrategy[str], max_bytes: int) -> st.SearchStrategy[str]:
    return st.text(characters, min_size=1, max_size=max_bytes).filter(lambda text: len(text.encode()) <= max_bytes)


def header_values() -> st.SearchStrategy[Any]:
    """Everything a header may hold, nested."""
    numbers = st.one_of(st.booleans(), st.integers(), st.integers(2**63, 2**200), st.floats(), st.decimals())
    plain = st.one_of(st.none(), numbers, st.text(), st.binary(), instants())
    names = st.one_of(st.text(), st.sampled_from(["$bytes", "$map", "$type", "__proto__", ""]))
    return st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=8)


def properties() -> st.SearchStrategy[dict[str, Any]]:
    """AMQP properties, some or none."""
    by_type: dict[type, st.SearchStrategy[Any]] = {str: st.text(), int: st.integers(), datetime: instants()}
    by_name = {name: by_type[kind] for name, kind in PROPERTY_TYPES.items()}
    by_name |= {name: st.sampled_from(allowed) for name, allowed in PROPERTY_RANGES.items()}
    return st.fixed_dictionaries({}, optional=by_name)


def messages() -> st.SearchStrategy[DelayedMessage]:
    """Messages with everything a message may hold."""
    return st.builds(
        DelayedMessage,
        message_id=texts(255),
        destination=queue_names(255),
        due_time=instants(),
        body=st.binary(),
        headers=st.dictionaries(st.text(), header_values(), max_size=5),
        properties=properties(),
        failure_count=st.integers(0, 1000),
        next_attempt=st.none() | instants(),
    )
