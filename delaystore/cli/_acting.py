"""In whose name a command changes things."""

from typing import TYPE_CHECKING, Annotated

from delaystore.cli._options import environment_option

if TYPE_CHECKING:
    from delaystore.cli._endpoint import OpenedEndpoint
    from delaystore.operations import Operations

By = Annotated[
    str | None, environment_option("--by", "In whose name the change is noted. Default: user@host.", metavar="NAME")
]


def acting(opened: "OpenedEndpoint", by: str | None) -> "Operations":
    """The endpoint's operations, in the name that --by says."""
    operations = opened.delivery.operations
    return operations if by is None else operations.acting_as(by)
