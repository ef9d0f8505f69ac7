"""Local times, which mean an instant only together with a time zone: some come twice, some never."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delaystore.loading.conversion._faults import Faults, Unfit, by_value
from delaystore.loading.options import AmbiguousTime, zone
from delaystore.message import EARLIEST_DUE_TIME, LATEST_DUE_TIME

MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = (EARLIEST_DUE_TIME - EPOCH) // MICROSECOND
LATEST: Final = (LATEST_DUE_TIME - EPOCH) // MICROSECOND
"""What a due time may be, in microseconds after 1970."""
SKIPPED: Final = "due_time does not exist: the clocks of its time zone skip it"
TWICE: Final = "due_time is ambiguous: the clocks of its time zone bring it twice (see the option ambiguousTime)"
OUT_OF_RANGE: Final = "due_time is out of range"
_LOCAL_EPOCH: Final = EPOCH.replace(tzinfo=None)
_HOUR: Final = timedelta(hours=1) // MICROSECOND
_DAY: Final = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class LocalClock:
    """The clocks of a time zone. Instants are microseconds after 1970."""

    time_zone: str
    ambiguous: AmbiguousTime

    def instant(self, local: datetime) -> int:
        """When the clocks show `local`, which is naive; Unfit if never, or twice without a choice."""
        aware = local.replace(tzinfo=zone(self.time_zone), fold=0)
        first, second = aware.utcoffset(), aware.replace(fold=1).utcoffset()
        assert first is not None
        assert second is not None
        if first < second:
            raise Unfit(SKIPPED)
        if first > second and self.ambiguous is AmbiguousTime.REJECT:
            raise Unfit(TWICE)
        offset = second if self.ambiguous is AmbiguousTime.LATEST else first
        return (local - _LOCAL_EPOCH - offset) // MICROSECOND

    def instants(self, local: pa.Array, faults: Faults) -> pa.Array:
        """As `instant`, of microseconds on the clocks: hour by hour, and one by one in an hour when clocks change."""
        outside = pc.or_(pc.less(local, EARLIEST - _DAY), pc.greater(local, LATEST + _DAY))
        faults.add(outside, OUT_OF_RANGE)
        local = pc.if_else(outside, pa.scalar(None, pa.int64()), local)
        hours = pc.divide(pc.subtract(local, EARLIEST - _DAY), _HOUR).dictionary_encode()
        offsets = pa.array([self._offset(hour) for hour in hours.dictionary.to_pylist()], pa.int64())
        instants = pc.subtract(local, offsets.take(hours.indices))
        changing = pc.if_else(instants.is_null(), local, pa.scalar(None, pa.int64()))
        return pc.coalesce(instants, by_value(changing, self._shown, pa.int64(), faults))

    def _shown(self, local: int) -> int:
        return self.instant(_LOCAL_EPOCH + local * MICROSECOND)

    def _offset(self, hour: int) -> int | None:
        """Microseconds that the clocks are ahead of UTC in that hour since the year 1. None: they are changed in it."""
        begin = datetime(1, 1, 1, tzinfo=zone(self.time_zone)) + hour * timedelta(hours=1)
        end = begin + timedelta(hours=1) - MICROSECOND
        offsets = {at.replace(fold=fold).utcoffset() for at in (begin, end) for fold in (0, 1)}
        offset = offsets.pop()
        return None if offsets or offset is None else offset // MICROSECOND
