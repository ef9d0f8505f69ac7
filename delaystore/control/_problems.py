"""What can be wrong with a request."""

from enum import StrEnum
from typing import Any


class ProblemCode(StrEnum):
    """By which a program knows it; part of the protocol."""

    MALFORMED = "malformed"
    """It is no JSON object, or too large."""
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_COMMAND = "unknown_command"
    BAD_REQUEST = "bad_request"
    """It has a member too many, or too few, or one of the wrong type."""
    BAD_ID = "bad_id"
    """What can be no message_id, or no key."""
    BAD_TIME = "bad_time"
    REFUSED = "refused"
    """The store works, and refuses this request."""


class RequestError(Exception):
    """A request that cannot be done. `more`: further members of the answer's `error`."""

    def __init__(self, code: ProblemCode, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more

    def document(self) -> dict[str, Any]:
        """The answer's `error`."""
        return {"code": self.code.value, "message": str(self), **self.more}


def cut(text: str, most: int = 300) -> str:
    """Return `text`, or its first `most` characters."""
    return text if len(text) <= most else f"{text[:most]}..."
