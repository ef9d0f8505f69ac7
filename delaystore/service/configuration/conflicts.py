"""What must not be the same twice in a configuration: ports, queues, tables."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from delaystore.errors import ConfigurationError
from delaystore.service.configuration.addresses import Address

if TYPE_CHECKING:
    from delaystore.service.configuration.tree import EndpointConfiguration

_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened to


def check_listeners(listeners: Mapping[str, Address | None]) -> None:
    """Raise ConfigurationError where two tables listen to one port. `listeners`: where each table listens, if it does.

    Errors begin with the later table's name.
    """
    before: dict[str, Address] = {}
    for name, address in listeners.items():
        if address is None or not address.port:
            continue
        for other, taken in before.items():
            if _collide(address, taken):
                raise ConfigurationError(
                    f"{name} listens to {address}, and {other} to {taken}: give each a port of its own"
                )
        before[name] = address


def _collide(one: Address, other: Address) -> bool:
    hosts = {"127.0.0.1" if host.lower() == "localhost" else host.lower() for host in (one.host, other.host)}
    return one.port == other.port and (len(hosts) == 1 or bool(hosts & _EVERY_HOST))


def check_endpoints(endpoints: Mapping[str, "EndpointConfiguration"]) -> None:
    """Raise ConfigurationError where two of one service read one queue, or keep their messages in one table.

    What becomes of a message would be a matter of luck. Errors begin with `endpoint`.
    """
    _check_once((where, who) for name, each in endpoints.items() for where, who in _read_by(name, each))
    _check_once(
        ((each.store.value, each.schema, each.table), f"{name!r} keeps its messages in the table {each.table!r}")
        for name, each in endpoints.items()
        if each.table is not None
    )


def _check_once(uses: Iterable[tuple[object, str]]) -> None:
    found: dict[object, str] = {}
    for what, use in uses:
        if what in found:
            raise ConfigurationError(f"endpoint {use}, and {found[what]} too: change one, or leave it out")
        found[what] = use


def _read_by(name: str, endpoint: "EndpointConfiguration") -> Iterator[tuple[object, str]]:
    for ingress_name, ingress in endpoint.ingress.items():
        queue, broker = ingress.settings(ingress_name).queue, (ingress.broker or endpoint.transport).value
        yield (broker, queue), f"{name!r} reads the queue {queue!r} as ingress {ingress_name!r}"
    if endpoint.control.enabled:
        queue = endpoint.control.queue or f"{name}.control"
        yield (endpoint.transport.value, queue), f"{name!r} reads the queue {queue!r} as its control queue"
