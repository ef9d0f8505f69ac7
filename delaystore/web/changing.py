"""Forms that change something: their fields, once it is certain that one of our pages sent them."""

from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request

from delaystore.web.bodies import body_of
from delaystore.web.errors import Refusal
from delaystore.web.forms import Fields
from delaystore.web.pages import CSRF
from delaystore.web.site import site_of

LARGEST: Final = 128 * 1024
"""Bytes of a form."""
_FORM: Final = "application/x-www-form-urlencoded"
_NOT_OURS: Final = (
    "Nothing was changed: the form was not one that this browser got from this page, or it is an old one. "
    "Go back, reload the page, and try again."
)


def being_changed(message_id: str) -> str:
    """Who has a message that is claimed: a store cannot tell a dispatcher from another change, as of a double click."""
    return f"message {message_id} is just being forwarded by a dispatcher, or changed by another request"


async def fields_of(request: Request) -> Fields:
    """The fields of the form that was sent. Raises Refusal unless it has the token that this browser and user got."""
    is_form = request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM
    fields = QueryParams(await body_of(request, LARGEST) if is_form else b"")
    if not site_of(request).pages.is_ours(request, fields.get(CSRF, "")):
        raise Refusal(403, _NOT_OURS)
    return fields
