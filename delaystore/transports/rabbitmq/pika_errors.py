"""pika's errors: their meaning in one sentence without secrets, and their log lines, kept quiet.

On an outage pika logs several errors with tracebacks for each attempt to connect. delaystore logs one line when a
connection is lost and one when it is back, so warnings and errors of pika about our connections are dropped, unless
the pika logger in question is enabled for DEBUG. A program's own use of pika is not touched.
"""

import logging
import re
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
_GIVEN_UP: Final = (connection_workflow.AMQPConnectorStackTimeout, exceptions.ConnectionOpenAborted)
"""Errors of pika, beside TimeoutError, for a connection that it did not have in time."""
_SYSTEM_ERROR: Final = re.compile(r"\(-?\d+, ['\"](.*?)['\"]\)")
"""In the repr of an OSError: its text."""
NOT_FOUND: Final = 404
"""The reply code for a queue or an exchange that does not exist, and for a queue that exists and is down."""
_NO_SUCH: Final = ("NOT_FOUND - no queue ", "NOT_FOUND - no exchange ")
"""How RabbitMQ begins to say that it does not exist; its name follows, which may hold anything. What else it says with
that code is of a queue that does: its node is down, it crashed, it does not answer (rabbit_amqqueue)."""
_NODE_IS_GONE: Final = ("down or inaccessible", "stopped by supervisor")
"""How RabbitMQ says that a classic queue's node is not there, or just going."""
_WAIT_FOR_NODE: Final = "; wait for that node, on which alone a classic queue lives, or use a quorum queue"
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


def reason_of(error: BaseException | None, timeout: float | None = None) -> str:
    """Explain an error of pika's in one sentence. `timeout`: seconds that an attempt to connect had."""
    error = _innermost(error)
    text = " ".join(str(argument) for argument in getattr(error, "args", ())) or type(error).__name__
    if _login_refused(error):
        return "login refused; check user name and password"
    if isinstance(error, exceptions.ProbableAuthenticationError):
        return "it closed the connection during the login"
    if isinstance(error, exceptions.ProbableAccessDeniedError):
        return _of_virtual_host(text)
    if isinstance(error, exceptions.IncompatibleProtocolError):
        return (
            "it does not speak AMQP 0-9-1, or closed the connection at once; check the port, and where that is a "
            "proxy's, the brokers behind it"
        )
    if isinstance(error, exceptions.ConnectionClosed | exceptions.ChannelClosed):
        advice = _WAIT_FOR_NODE if any(text in error.reply_text for text in _NODE_IS_GONE) else ""
        return f"{error.reply_code} {error.reply_text}{advice}"
    if isinstance(error, _GIVEN_UP) or (isinstance(error, TimeoutError) and error.errno is None):
        within = "in time" if timeout is None else f"within {timeout:g} s"
        return f"no answer to the connection attempt {within}"
    if type(error) is exceptions.AMQPHeartbeatTimeout:
        return "no sign of life, not even heartbeats"
    if isinstance(error, exceptions.StreamLostError):
        return _of_lost_stream(text)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its TLS certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or text}"
    if isinstance(error, OSError):
        return error.strerror or text
    return text


def says_missing(error: exceptions.ChannelClosed) -> bool:
    """Whether the broker closed a channel since a queue or an exchange does not exist."""
    text: str = error.reply_text
    return error.reply_code == NOT_FOUND and text.startswith(_NO_SUCH)


def _login_refused(error: BaseException | None) -> bool:
    """Whether the broker said that it does not know this user, or not by this password."""
    if isinstance(error, exceptions.ProbableAuthenticationError):
        return "ConnectionClosedByBroker" in str(error.args)  # otherwise the connection was lost just then
    return isinstance(error, exceptions.AuthenticationError)


def _of_virtual_host(text: str) -> str:
    if "ConnectionClosedByBroker" not in text:
        return "it closed the connection when the virtual host was opened"
    return f"access to the virtual host refused ({_after_code(text)})"


def _of_lost_stream(text: str) -> str:
    """Out of pika's repr of the system's error, as in ConnectionResetError(104, 'Connection reset by peer')."""
    if "EOF" in text:
        return "it closed the connection"
    found = _SYSTEM_ERROR.search(text)
    return found[1] if found else text


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
