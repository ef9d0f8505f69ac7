"""Numbers as people read them."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def roughly(number: int) -> str:
    """Three digits of an estimate: `about 10,200,000`."""
    return f"about {round(number, 3 - len(str(number))):,}"


def up_to(number: int, noun: str = "", *, exact: bool) -> str:
    """What was counted, perhaps not to the end, as of failing messages: `1,234`, `10,000 or more`."""
    text = f"{number:,}" if exact else f"{number:,} or more"
    return f"{text} {noun}{'' if number == 1 else 's'}" if noun else text


def named(names: Sequence[str], most: int = 10) -> str:
    """The first so many names, and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def rate_text(rate: float) -> str:
    """Messages a second, or a minute or an hour where it is less than one in ten: `120/s`, `3.5/min`."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if rate * seconds >= 0.1:
            each = rate * seconds
            return f"{each:,.0f}/{unit}" if each >= 10 else f"{each:.2g}/{unit}"
    return "0/s"


def limit_text(max_rate: float) -> str:
    """A destination's limit: `12.5/s`; a slow one in a minute or an hour, as it was given: `4/h`."""
    for unit, seconds in (("s", 1), ("m", 60)):
        if max_rate * seconds >= 0.1:
            return f"{max_rate * seconds:g}/{unit}"
    return f"{max_rate * 3600:g}/h"
