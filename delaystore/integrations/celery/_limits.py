"""Delivery limits: a quorum queue that has one drops what was given back too often, and draining gives back."""

from typing import Any, Final
from urllib.parse import quote, urlencode

from delaystore.cascades import BrokerClient
from delaystore.cascades.delivery_limits import limit_warning
from delaystore.errors import ConfigurationError

_COUNT: Final = "x-delivery-count"
"""How often a quorum queue had the message back; other queues count nothing."""
_FILES: Final = {"ca_certs": "cafile", "certfile": "certfile", "keyfile": "keyfile"}
"""What `broker_use_ssl` calls the files of TLS, and a URL."""


def refuse_limit(connection: Any, queue: str, management: str) -> None:
    """Raise ConfigurationError for a queue with a delivery limit, as the management API at this URL tells.

    Raises as well: ConfigurationError for the API of another broker, TransportUnavailableError, TransportError.
    """
    with BrokerClient(_url(connection), management) as broker:
        warning = limit_warning(broker, queue)
    if warning is not None:
        raise ConfigurationError(f"{warning}; or leave its tasks to Celery's workers")


def refuse_quorum(app: Any, queue: str) -> None:
    """Raise ConfigurationError for what the app declares as a quorum queue: only the management API tells its limit."""
    declared = app.amqp.queues.get(queue)
    if ((declared and declared.queue_arguments) or {}).get("x-queue-type") == "quorum":
        raise unknown_limit(queue)


def is_counted(raw: Any) -> bool:
    """Whether a quorum queue counts how often it has this message back, so that the next time may be one too many."""
    return _COUNT in (raw.properties.get("application_headers") or {})


def unknown_limit(queue: str) -> ConfigurationError:
    """What to do where nothing tells the limit."""
    return ConfigurationError(
        f"{queue!r} is a quorum queue, and drain gives back what stays, which RabbitMQ drops beyond a delivery limit; "
        "pass the URL of its management API (--management URL), which tells whether there is a limit"
    )


def _url(connection: Any) -> str:
    """The broker of kombu's `connection`, as delaystore's URL."""
    info = connection.info()
    login = f"{quote(info['userid'], safe='')}:{quote(info['password'], safe='')}"
    host = f"[{info['hostname']}]" if ":" in info["hostname"] else info["hostname"]
    place = f"{login}@{host}:{info['port']}/{quote(info['virtual_host'], safe='')}"
    if not connection.ssl:
        return f"amqp://{place}"
    given = connection.ssl if isinstance(connection.ssl, dict) else {}
    return f"amqps://{place}?" + urlencode({ours: given[name] for name, ours in _FILES.items() if given.get(name)})
