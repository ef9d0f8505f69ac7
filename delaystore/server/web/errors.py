"""Answers in place of a page: a status, and one clear sentence."""

from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delaystore.errors import (
    ConfigurationError,
    DelaystoreError,
    DuplicateKeyError,
    DuplicateMessageError,
    InvalidMessageError,
    InvalidScheduleError,
    MessageBeingDispatchedError,
    StoreError,
    StorePermissionError,
    StoreSetupError,
    StoreUnavailableError,
    TransportError,
    UnknownLoadError,
    UnknownScheduleError,
)
from delaystore.server.web._site import TooManyJobsError, pages_of
from delaystore.server.web.http import HEADERS, NOT_KEPT, is_api
from delaystore.server.web.store_calls import NoAnswerError

TITLES: Final[Mapping[int, str]] = {
    400: "Invalid request",
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Timeout",
    409: "Conflict",
    413: "Too large",
    415: "Not JSON",
    422: "Ambiguous request",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}
_PLAIN: Final[Mapping[str, str]] = {
    "Not Found": "This address does not exist.",
    "Method Not Allowed": "This address does not support the method.",
}
"""Sentences in place of Starlette's words."""
_LONGEST: Final = 600
"""Characters of a sentence: a given value may stand in it, of any length."""
_STATUS: Final = (
    (TooManyJobsError, 429),
    (DuplicateMessageError, 409),
    (DuplicateKeyError, 409),
    (MessageBeingDispatchedError, 409),
    (InvalidMessageError, 400),
    (InvalidScheduleError, 400),
    (StorePermissionError, 503),
    (StoreSetupError, 503),
    (StoreUnavailableError, 503),
    (StoreError, 503),
    (TransportError, 503),
    (UnknownLoadError, 404),
    (UnknownScheduleError, 404),
    (ConfigurationError, 400),
)
_LATER: Final = (429, 503)
"""Statuses of requests that may succeed a little later."""


class Refusal(HTTPException):
    """A request that is not served: `detail` is the sentence."""

    def __init__(self, status_code: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status_code, detail, dict(headers or {}))


def status_of(error: type[DelaystoreError]) -> int:
    """Return the status that fits errors of this class."""
    return next((status for kind, status in _STATUS if issubclass(error, kind)), 500)


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document (RFC 9457), for programs."""
    detail = sentence.encode(errors="backslashreplace").decode()  # half a character would be no JSON
    return JSONResponse(
        {"title": TITLES.get(status, TITLES[500]), "status": status, "detail": detail},
        status,
        headers,
        media_type="application/problem+json",
    )


async def answer_refusal(request: Request, error: Exception) -> Response:
    """The answer to an HTTPException, ours or the host's."""
    assert isinstance(error, HTTPException)
    detail = str(error.detail)  # FastAPI's may be anything that JSON has
    sentence = _PLAIN.get(detail, detail)
    return await _answer(request, error.status_code, sentence, error.headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to our error."""
    assert isinstance(error, DelaystoreError)
    status, text = status_of(type(error)), str(error)
    if isinstance(error, NoAnswerError) and request.method != "GET":
        text += "; the change may still be made: check before you try again"
    return await _answer(request, status, _sentence(text), {"Retry-After": "5"} if status in _LATER else None)


async def answer_fault(request: Request, _error: Exception) -> Response:
    """The answer to our own mistake: it does not name the cause; the log does."""
    headers = {**HEADERS, "Cache-Control": NOT_KEPT}  # Starlette answers faults outside of all middleware
    return await _answer(request, 500, "Internal error in delaystore. See the server's log.", headers)


async def _answer(request: Request, status: int, sentence: str, headers: Mapping[str, str] | None) -> Response:
    if len(sentence) > _LONGEST:
        sentence = f"{sentence[: _LONGEST // 2]} … {sentence[-_LONGEST // 2 :]}"
    if is_api(request):
        return problem(status, sentence, headers)
    return pages_of(request).problem(request, status, TITLES.get(status, TITLES[500]), sentence, headers)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
