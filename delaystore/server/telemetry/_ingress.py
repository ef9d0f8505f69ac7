"""Metrics of an ingress."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from opentelemetry.metrics import MeterProvider, get_meter_provider

from delaystore.dispatcher import BreakerState
from delaystore.ingress.health import RESULTS, IngressHealth
from delaystore.ingress.ingress import Ingress
from delaystore.server.telemetry import _names as names
from delaystore.server.telemetry._metrics import STATES, gauges_of

_GaugeValue = tuple[float, Mapping[str, str]]


class IngressMetrics:
    """Reports an ingress when metrics are read, as long as this object is referenced.

    `endpoint`: the value of the attribute `delaystore.endpoint`. `meter_provider` None: the global one.
    """

    def __init__(self, endpoint: str, ingress: Ingress, *, meter_provider: MeterProvider | None = None) -> None:
        self._ingress = ingress
        self._attributes: Final[Mapping[str, str]] = {names.ENDPOINT: endpoint, names.INGRESS_QUEUE: ingress.queue}
        gauges_of(get_meter_provider() if meter_provider is None else meter_provider).add(self)

    def observed(self, name: str) -> Iterable[_GaugeValue]:
        """The values of a metric, for the exporter."""
        if name == names.INGRESS_MESSAGES.name:
            return self._messages(self._ingress.health())
        if name == names.BREAKER_STATE.name:
            return self._breakers(self._ingress.health())
        if name == names.INGRESS_CONSUMING.name:
            return [(float(self._ingress.health().connected), self._attributes)]
        if name == names.INGRESS_UNACKNOWLEDGED.name:
            return [(float(self._ingress.health().unacknowledged), self._attributes)]
        return []

    def _messages(self, health: IngressHealth) -> Iterator[_GaugeValue]:
        for result in RESULTS:
            yield getattr(health, result), {**self._attributes, names.RESULT: result}

    def _breakers(self, health: IngressHealth) -> Iterator[_GaugeValue]:
        for name, state in health.breakers.items():
            yield STATES[BreakerState(state)], {**self._attributes, names.BREAKER: name}
