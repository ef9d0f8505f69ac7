"""The options of commands that work on a RabbitMQ broker itself. Each is an environment variable as well."""

from typing import Annotated

from delaystore.cli._options import environment_option, url_option

BrokerUrl = Annotated[
    str | None,
    url_option("--broker", "The RabbitMQ broker: amqp[s]://user:password@host:port/vhost."),
]
ManagementUrl = Annotated[
    str | None,
    url_option(
        "--management",
        "The management API: http[s]://[user:password@]host:15672; the login defaults to the broker's. "
        "Without it, what only the API knows is reported as unknown.",
    ),
]
DryRun = Annotated[bool, environment_option("--dry-run", "Change nothing; say what would be done.")]
