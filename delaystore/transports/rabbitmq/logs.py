"""pika's own log lines, kept quiet where delaystore speaks for itself.

On an outage pika logs several errors with tracebacks for each attempt to connect. delaystore logs one line when a
connection is lost and one when it is back, so warnings and errors of pika about our connections are dropped, unless
the pika logger in question is enabled for DEBUG. What a program does with pika itself is not touched.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pika.adapters.select_connection  # noqa: F401 - makes its loggers, which are to be filtered

_RESOLVER: Final = "pika.adapters.utils.selector_ioloop_adapter"
"""Logs failed name look-ups from a thread of its own, where nobody can tell whose they are; they are raised as well."""
_local = threading.local()


class _Quiet(logging.Filter):
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


def _install() -> None:
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.split(".")[0] == "pika" and isinstance(logger, logging.Logger):
            logger.addFilter(_Quiet())


_install()
