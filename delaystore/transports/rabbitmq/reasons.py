"""Why a connection failed, in one sentence without secrets."""

import ssl
from typing import Any

from pika import exceptions
from pika.adapters.utils import connection_workflow


def reason_of(error: BaseException | None) -> str:
    """What `error`, as pika reports it, means to a person."""
    error = _innermost(error)
    text = " ".join(str(argument) for argument in getattr(error, "args", ())) or type(error).__name__
    if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
        return "login refused; check user name and password"
    if isinstance(error, exceptions.ProbableAccessDeniedError):
        return f"access to the virtual host refused ({_after_code(text)})"
    if isinstance(error, exceptions.IncompatibleProtocolError):
        return "it does not speak AMQP 0-9-1; check the port"
    if isinstance(error, exceptions.ConnectionClosed | exceptions.ChannelClosed):
        return f"{error.reply_code} {error.reply_text}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its TLS certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or text}"
    if isinstance(error, OSError):
        return error.strerror or text
    return text


def _innermost(error: Any) -> Any:
    """The failure itself, out of the wrappers of pika's connection workflow."""
    while True:
        if isinstance(error, connection_workflow.AMQPConnectionWorkflowFailed):
            error = error.exceptions[-1]
        elif isinstance(error, connection_workflow.AMQPConnectorPhaseErrorBase):
            error = error.exception
        elif type(error) is exceptions.AMQPConnectionError and error.args and isinstance(error.args[0], BaseException):
            error = error.args[0]
        else:
            return error


def _after_code(text: str) -> str:
    """The broker's own words out of pika's repr of an exception."""
    return text.partition(") ")[2].strip("'\"") or text
