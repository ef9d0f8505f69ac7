"""Who has sent a request, as far as its message says it."""

from typing import Final

from delaystore.transports.rabbitmq.raw import MalformedPropertiesError, RawProperties

_BY: Final = "by the control queue"


def sender_of(properties: RawProperties) -> str:
    """In whose name its changes are noted.

    The user_id is true: RabbitMQ takes no message with another one than its sender's. An app_id may be anything.
    """
    try:
        user, application = properties.text("user_id"), properties.text("app_id")
    except MalformedPropertiesError:
        user = application = None
    if user:
        return f"{_printable(user)}, {_BY}"
    if application:
        return f"application {_printable(application)}, {_BY}"
    return f"somebody, {_BY}"


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name)
