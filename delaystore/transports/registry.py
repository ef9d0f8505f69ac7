"""Transports by URL."""

from delaystore.registry import open_url
from delaystore.transports.abc import Transport


def open_transport(url: str) -> Transport:
    """The transport for `url`, from the entry points `delaystore.transports`.

    Raises UnknownSchemeError, ConfigurationError, MissingDependencyError.
    """
    transport: Transport = open_url("delaystore.transports", "transport", url)
    return transport
