"""The log of commands that run for long, on standard error."""

import logging
import sys

from typing_extensions import override

from delaystore.cli._output import printable


class _OneLine(logging.Formatter):
    """Escapes what is not printable: what a log line names may be somebody else's text. Tracebacks keep their lines."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def log_to_standard_error(*filters: logging.Filter) -> None:
    """Log there, from warnings on, what all `filters` let pass; loggers of delaystore's may be told to say more."""
    handler = logging.StreamHandler(sys.stderr)
    for each in filters:
        handler.addFilter(each)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
