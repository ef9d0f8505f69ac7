"""`x-delay`, as the delayed-message plugin has it."""

from datetime import datetime
from math import isfinite
from typing import Any, ClassVar, Final

from typing_extensions import override

from delaystore.ingress.reading.content import IncomingContent
from delaystore.ingress.reading.forms._times import integer_in, later, unreadable
from delaystore.ingress.reading.forms.abc import Delay, DelayForm

HEADER: Final = "x-delay"
_INTEGERS: Final = range(-(2**63), 2**63)
"""Whole numbers that AMQP has."""


class XDelayForm(DelayForm):
    """Milliseconds: a whole number of any width, its text, or a float, whose fraction is cut off.

    Forwarded messages have it negated. 0 and less say nothing: the message has been delayed before, or is not to be.
    """

    name: ClassVar = "x-delay"

    @override
    def read(self, content: IncomingContent, start: datetime) -> Delay | None:
        value = content.headers.get(HEADER)
        if value is None:
            return None
        if type(value) is not int:
            value = _coerced(value, content)
        if value <= 0:
            return None
        content.headers[HEADER] = -value
        return Delay(later(start, value, HEADER), taken_off=True)


def _coerced(value: Any, content: IncomingContent) -> int:
    if type(value) is float and isfinite(value):
        if int(value) in _INTEGERS:  # what is less stays a float
            content.headers[HEADER] = int(value)
        return int(value)
    number = integer_in(value)
    if number is None:
        raise unreadable(HEADER, value, "a whole number of milliseconds")
    return number
