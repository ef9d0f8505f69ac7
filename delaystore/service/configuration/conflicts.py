"""What must not be the same twice in a configuration: ports, queues, tables."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.service.configuration.addresses import Address
from delaystore.service.configuration.tables import KeptTable

_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened to # nosec B104


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


def check_queues(reads: Iterable[tuple[object, str]], error_queues: Iterable[tuple[object, str]]) -> None:
    """Raise ConfigurationError where two endpoints, or two parts of one, read one queue, or one reads an error queue.

    What becomes of a message would be a matter of luck. Each: a queue, and by whom it is used, as in `'sales' reads
    ...`. Errors begin with `endpoint`.
    """
    found: dict[object, str] = {}
    for queue, use in reads:
        if queue in found:
            raise ConfigurationError(f"endpoint {use}, and {found[queue]} too: change one, or leave it out")
        found[queue] = use
    for queue, use in error_queues:
        if queue in found:
            raise ConfigurationError(f"endpoint {use}, and {found[queue]}: name another one")


def check_tables(tables: Sequence[KeptTable]) -> None:
    """Raise ConfigurationError where two endpoints keep their messages in one table; it begins with `endpoint`."""
    for other, one in combinations(tables, 2):
        conflict = one.conflict_with(other)
        if conflict is not None:
            raise ConfigurationError(f"endpoint {conflict}")
