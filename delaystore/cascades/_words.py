"""What findings call a layout, and what they tell people to do about it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutWords:
    """`layout`: a noun. `create`, `verify`: the commands for it. `another`: what to do about an inequivalent part.

    `astray`: what is wrong with a binding too many, and what to do. `by_management`: what AMQP does not tell of it, a
    sentence each. `emptying`: what to do before it can be deleted.
    """

    layout: str
    create: str
    verify: str
    another: str
    astray: str
    by_management: tuple[str, ...]
    emptying: str


CASCADE: Final = LayoutWords(
    layout="cascade",
    create="delaystore delays create",
    verify="delaystore delays verify",
    another="whoever made it wants another layout: choose that cascade, or delete this and create it anew",
    astray="is not part of the cascade, and leads messages astray; unbind it",
    by_management=(
        "which bindings are missing or too many: only the management API lists them",
        "whether destinations get messages for others: only the management API lists their bindings",
    ),
    emptying="let them arrive",
)
