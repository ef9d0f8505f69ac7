"""What is read when metrics are: of stores that are watched, of breakers, of ingresses."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from delaystore.telemetry._names import METRICS, SCOPE

_OBSERVED: Final = tuple(metric for metric in METRICS if metric.kind in ("gauge", "observable counter"))
_Attributes = Mapping[str, str]


class Observed(Protocol):
    """What gauges are read from."""

    def observed(self, name: str) -> Iterable[tuple[float, _Attributes]]:
        """The values of the gauge, or observable counter, `name`, each with its attributes."""
        ...


class Gauges:
    """The gauges and observable counters of one meter provider, which takes each once, for however many are read."""

    def __init__(self, meter: Meter) -> None:
        self._observed: WeakSet[Observed] = WeakSet()
        for metric in _OBSERVED:
            is_gauge = metric.kind == "gauge"
            create = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
            create(metric.name, [partial(self._observe, metric.name)], metric.unit, metric.description)

    def add(self, observed: Observed) -> None:
        """Read `observed`, too, for as long as it lives."""
        self._observed.add(observed)

    def _observe(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        for each in list(self._observed):
            for value, attributes in each.observed(name):
                yield Observation(value, dict(attributes))


_gauges: Final[WeakKeyDictionary[MeterProvider, Gauges]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def gauges_of(provider: MeterProvider) -> Gauges:
    """The gauges of `provider`, made at the first call."""
    with _lock:
        if provider not in _gauges:
            _gauges[provider] = Gauges(provider.get_meter(SCOPE))
        return _gauges[provider]
