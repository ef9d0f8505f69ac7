"""Floats in headers that another program wrote, and that are only passed on."""

from dataclasses import replace
from math import isfinite
from typing import Any, Final

from delaystore.message import DelayedMessage

_AS_LARGE: Final = 2**62
"""Takes as many bytes as a float."""


def without_floats(message: DelayedMessage) -> DelayedMessage:
    """The message with whole numbers of the same size in place of floats, for a transport's check.

    A check refuses floats for the sender's sake, as some clients read them as whole numbers. What holds one already,
    such as a message that an ingress took, is checked without. Infinities, and what is no number, stay.
    """
    return replace(message, headers={name: _without(value) for name, value in message.headers.items()})


def _without(value: Any) -> Any:
    if type(value) is float and isfinite(value):
        return _AS_LARGE
    if type(value) is list:
        return [_without(item) for item in value]
    return {name: _without(item) for name, item in value.items()} if type(value) is dict else value
