"""Why an arrival cannot be stored."""

from typing import Final

_LONGEST: Final = 500
"""Characters of a reason: it may cite what somebody else wrote, and has to fit a header."""


class RejectedArrivalError(Exception):
    """An arrival that is no message for the store; its text is one sentence that says why, 500 characters at most.

    It goes to the rejected queue, with this text in a header.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}...")
