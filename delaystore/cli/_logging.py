"""What commands that run for long log, on standard error."""

import logging
import sys

from typing_extensions import override

from delaystore.cli._output import printable


class _OneLine(logging.Formatter):
    """Escapes what is not printable: what a log line names may be somebody else's text. Tracebacks keep their lines."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def log_to_standard_error(*, verbose: bool) -> None:
    """Warnings and errors; `verbose`: all that delaystore logs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if verbose:
        logging.getLogger("delaystore").setLevel(logging.DEBUG)
