"""Where messages are moved to, by URL."""

from typing import Final

from delaystore.errors import ConfigurationError, UnknownSchemeError
from delaystore.migrations.abc import MigrationTarget
from delaystore.registry import open_url
from delaystore.stores.abc import ManagedDelayedMessageStore

_DRY_RUN: Final = "noop"
__all__ = ["open_target"]
_BROKERS: Final = ("amqp", "amqps")


def open_target(url: str, endpoint: str) -> MigrationTarget:
    """The target for `url`; nothing is connected yet.

    `amqp[s]://...?delays=NAME`: RabbitMQ's native delays, NAME a cascade or another of `delay_named`;
    `management=URL` (percent-encoded) adds checks by the management API. `amqp[s]://...`: RabbitMQ directly, for
    due messages. The URL of a store: that store, with the table of `endpoint`. `noop:`: a dry run; `noop:URL`: one that
    checks the target at URL. Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    scheme = url.partition(":")[0].lower()
    if scheme == _DRY_RUN:
        from delaystore.migrations.targets._dry_run import DryRunTarget

        checked = url.partition(":")[2].strip("/")
        return DryRunTarget(open_target(checked, endpoint) if checked else None)
    if scheme in _BROKERS:
        return _on_broker(url)
    if scheme == "memory":
        raise ConfigurationError("a store in memory ends with this process, and all that was moved with it")
    try:
        return _in_store(url, endpoint)
    except UnknownSchemeError as error:
        raise UnknownSchemeError(f"{error}; and {', '.join((*_BROKERS, _DRY_RUN))}") from None


def _on_broker(url: str) -> MigrationTarget:
    from delaystore.migrations.targets._brokers import DirectTarget, NativeTarget
    from delaystore.transports.rabbitmq.parameters import take_parameter

    plain, delays = take_parameter(url, "delays")
    return DirectTarget(plain) if delays is None else NativeTarget(plain, delays)


def _in_store(url: str, endpoint: str) -> MigrationTarget:
    from delaystore.migrations.targets._stores import StoreTarget

    store = open_url("delaystore.stores", "target", url)
    if not isinstance(store, ManagedDelayedMessageStore):
        raise ConfigurationError("this store cannot list its messages, so nothing can be moved there exactly once")
    from delaystore.stores.sql import SqlDelayedMessageStore

    if isinstance(store, SqlDelayedMessageStore):
        from delaystore.migrations.targets._stores import SqlStoreTarget

        return SqlStoreTarget(store, endpoint)
    return StoreTarget(store, endpoint, f"{endpoint} in the store {url.partition(':')[0]}")
