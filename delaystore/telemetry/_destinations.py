"""Destinations as values of an attribute, of which there must not be many."""

from collections.abc import Iterable, Mapping

from delaystore.dispatcher import DispatchReport
from delaystore.telemetry._names import DESTINATION_NAME, OTHER


class Destinations:
    """The first `limit` destinations have values of their own, the others share OTHER; 0: none has the attribute."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def attributes(self, destination: str | None) -> Mapping[str, str]:
        """The attribute for `destination`; None: several, or unknown."""
        if not self._limit or destination is None:
            return {}
        if destination not in self._known:
            if len(self._known) >= self._limit:
                return {DESTINATION_NAME: OTHER}
            self._known.add(destination)
        return {DESTINATION_NAME: destination}

    def split(
        self, counts: DispatchReport, by_destination: Mapping[str, DispatchReport]
    ) -> Iterable[tuple[Mapping[str, str], DispatchReport]]:
        """What a pass did, in the parts that are told apart; lost claims have no destination."""
        if not self._limit:
            return [({}, counts)]
        parts = [(self.attributes(name), report) for name, report in by_destination.items()]
        return [*parts, ({}, DispatchReport(claims_lost=counts.claims_lost))] if counts.claims_lost else parts
