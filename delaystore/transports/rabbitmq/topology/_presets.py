"""Well-known cascades, and how to make another."""

from datetime import timedelta
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.topology._skipping import SkippingCascade
from delaystore.transports.rabbitmq.topology._walking import WalkingCascade
from delaystore.transports.rabbitmq.topology.cascade import MILLISECOND, QUORUM, SECOND, CascadeTopology

NSERVICEBUS_V2: Final = WalkingCascade(
    level_name="nsb.v2.delay-level-{level:02}", delivery="nsb.v2.delay-delivery", arguments=QUORUM
)
"""Shared with NServiceBus' RabbitMQ transport 7 and newer: names and arguments are a contract."""
NSERVICEBUS_V1: Final = WalkingCascade(
    level_name="nsb.delay-level-{level:02}", delivery="nsb.delay-delivery", arguments={"x-queue-mode": "lazy"}
)
"""Shared with NServiceBus' RabbitMQ transport 4.3 to 6; classic queues."""


def celery(queue_type: str = "quorum", prefix: str | None = None) -> WalkingCascade:
    """Celery's native delayed delivery (kombu 5.5 and newer; `prefix` from 5.7): a contract, too.

    An address is a task's routing key. Raises ConfigurationError for a `queue_type` other than quorum and classic.
    """
    if queue_type not in ("quorum", "classic"):
        raise ConfigurationError(f"queue_type must be quorum or classic, not {queue_type!r}")
    start = f"{prefix}_celery" if prefix else "celery"
    classic = {"x-queue-type": "classic", "x-overflow": "reject-publish"}
    return WalkingCascade(
        level_name=_literal(start) + "_delayed_{level}",
        delivery=f"{start}_delayed_delivery",
        arguments=QUORUM if queue_type == "quorum" else classic,
        bind_queue_too=True,
    )


def custom(
    prefix: str, *, levels: int = 28, unit: timedelta = SECOND, skipping: bool = False, addresses: bool = True
) -> CascadeTopology:
    """A cascade of your own, with quorum queues, and a queue `PREFIX.undeliverable`.

    `unit`: one second or one millisecond. `skipping`, `addresses`: see `SkippingCascade`.
    Raises ConfigurationError for names or levels that no broker allows.
    """
    if not prefix:
        raise ConfigurationError("a cascade of your own needs a prefix for its names")
    start = _literal(prefix)
    if skipping:
        return SkippingCascade(
            level_name=start + ".delay-{level:02}",
            done_name=start + ".delay-{level:02}.done",
            ingest=f"{prefix}.ingest",
            delivery=f"{prefix}.delivery" if addresses else f"{prefix}.done",
            undeliverable=f"{prefix}.undeliverable" if addresses else None,
            levels=levels,
            unit=unit,
            arguments=QUORUM,
            addresses=addresses,
        )
    if not addresses:
        raise ConfigurationError("only a skipping cascade can do without addresses")
    return WalkingCascade(
        level_name=start + ".delay-level-{level:02}",
        delivery=f"{prefix}.delay-delivery",
        undeliverable=f"{prefix}.undeliverable",
        levels=levels,
        unit=unit,
        arguments=QUORUM,
    )


def topology_named(name: str) -> CascadeTopology:
    """The cascade of that name, as command lines write it; raises ConfigurationError for an unknown one.

    nservicebus-v2, nservicebus-v1, celery, celery:classic, celery:quorum:PREFIX, skipping, custom:PREFIX,
    custom:PREFIX:LEVELS, custom:PREFIX:LEVELS:ms, skipping:PREFIX[:LEVELS[:ms]].
    """
    kind, *parts = name.split(":")
    if not parts:
        preset = {"nservicebus-v2": NSERVICEBUS_V2, "nservicebus-v1": NSERVICEBUS_V1, "skipping": SKIPPING}.get(kind)
        if preset is not None:
            return preset
    if kind == "celery" and len(parts) <= 2:
        if parts[1:] == [""]:
            raise ConfigurationError(f"the prefix in {name!r} is empty; for Celery's own names leave its colon out")
        return celery(*parts)
    if kind in ("custom", "skipping") and 1 <= len(parts) <= 3:
        return _custom_named(kind == "skipping", *parts)
    raise ConfigurationError(
        f"no cascade is called {name!r}; there are nservicebus-v2, nservicebus-v1, celery[:QUEUE_TYPE[:PREFIX]], "
        "skipping[:PREFIX[:LEVELS[:ms]]] and custom:PREFIX[:LEVELS[:ms]]"
    )


def _custom_named(skipping: bool, prefix: str, levels: str = "28", unit: str = "s") -> CascadeTopology:
    if not (levels.isascii() and levels.isdigit()) or unit not in ("s", "ms"):
        raise ConfigurationError(f"after the prefix {prefix!r} come the number of levels, and s or ms")
    return custom(prefix, levels=int(levels), unit=SECOND if unit == "s" else MILLISECOND, skipping=skipping)


def _literal(text: str) -> str:
    """`text` with its braces escaped for a format string."""
    return text.replace("{", "{{").replace("}", "}}")


SKIPPING: Final = custom("delaystore.skipping", skipping=True)
"""The skipping cascade with addresses, under delaystore's own name."""
