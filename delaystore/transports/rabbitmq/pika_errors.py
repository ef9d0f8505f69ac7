"""pika's errors: what they mean in one sentence without secrets, and their log lines, kept quiet.

On an outage pika logs several errors with tracebacks for each attempt to connect. delaystore logs one line when a
connection is lost and one when it is back, so warnings and errors of pika about our connections are dropped, unless
the pika logger in question is enabled for DEBUG. What a program does with pika itself is not touched.
"""

import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pika.adapters.select_connection  # noqa: F401 - makes its loggers, which are to be filtered
from pika import exceptions
from pika.adapters.utils import connection_workflow
from typing_extensions import override

_RESOLVER: Final = "pika.adapters.utils.selector_ioloop_adapter"
"""Logs failed name look-ups from a thread of its own, which hides whose connection they are for; raises them too."""
_local = threading.local()


class _Quiet(logging.Filter):
    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        ours = getattr(_local, "ours", False) or record.name == _RESOLVER
        return not ours or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


@contextmanager
def quiet_pika() -> Iterator[None]:
    """Drop pika's warnings and errors from this thread while the block runs."""
    before = getattr(_local, "ours", False)
    _local.ours = True
    try:
        yield
    finally:
        _local.ours = before


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


def _install() -> None:
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.split(".")[0] == "pika" and isinstance(logger, logging.Logger):
            logger.addFilter(_Quiet())


_install()
