"""In whose name a command changes things."""

import logging
from typing import TYPE_CHECKING, Annotated, Final

from typing_extensions import override

from delaystore.cli._options import environment_option
from delaystore.cli._output import say
from delaystore.stores.operable import Way

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint
    from delaystore.operations import Operations

By = Annotated[
    str | None, environment_option("--by", "In whose name the change is noted. Default: user@host.", metavar="NAME")
]


class _Saying(logging.Handler):
    """Says on standard error what the store did not take: that a change is made, but not noted."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {record.getMessage()}")


_SAYING: Final = _Saying(logging.ERROR)


def acting(opened: "OpenedEndpoint", by: str | None) -> "Operations":
    """The endpoint's operations, in the name that --by says."""
    logging.getLogger("delaystore.operations").addHandler(_SAYING)
    operations = opened.delivery.operations
    return operations.acting_as(by, way=Way.CLI)
