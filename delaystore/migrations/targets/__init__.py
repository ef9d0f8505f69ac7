"""Where messages are moved to, by URL."""

from typing import Final

from delaystore.errors import ConfigurationError, UnknownSchemeError
from delaystore.migrations.abc import MigrationTarget

REHEARSAL: Final = "noop"
_BROKERS: Final = ("amqp", "amqps")


def open_target(url: str, endpoint: str) -> MigrationTarget:
    """The target for `url`; nothing is connected yet.

    `amqp[s]://...?delays=NAME`: RabbitMQ's native delays, NAME a cascade or another of `delay_named`;
    `management=URL` (percent-encoded) adds what only the management API knows. `amqp[s]://...`: RabbitMQ directly, for
    what is due. The URL of a store: that store, with the table of `endpoint`. `noop:`: a rehearsal; `noop:URL`: one
    that is checked as if it moved to URL. Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    scheme = url.partition(":")[0].lower()
    if scheme == REHEARSAL:
        from delaystore.migrations.targets.noop import NoopTarget

        aim = url.partition(":")[2].strip("/")
        return NoopTarget(open_target(aim, endpoint) if aim else None)
    if scheme in _BROKERS:
        return _on_broker(url)
    if scheme == "memory":
        raise ConfigurationError("a store in memory ends with this process, and all that was moved with it")
    from delaystore.migrations.targets.store import open_store_target

    try:
        return open_store_target(url, endpoint)
    except UnknownSchemeError as error:
        raise UnknownSchemeError(f"{error}; and {', '.join((*_BROKERS, REHEARSAL))}") from None


def _on_broker(url: str) -> MigrationTarget:
    from delaystore.migrations.targets.direct import DirectTarget
    from delaystore.migrations.targets.native import NativeTarget
    from delaystore.transports.rabbitmq.parameters import take_parameter

    plain, delays = take_parameter(url, "delays")
    return DirectTarget(plain) if delays is None else NativeTarget(plain, delays)
