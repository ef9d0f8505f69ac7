"""What dead-lettering by the ingress queue itself added to a message, and took from it."""

from collections.abc import Mapping
from typing import Any, Final

from delaystore.ingress.reading.content import Content

DEATHS: Final = "x-death"
"""The newest first, by queue and reason."""
_EXPIRATION: Final = "original-expiration"
_DETAILS: Final = ("queue", "reason", "exchange")


def undo_deaths(content: Content, queue: str) -> None:
    """Take off what `queue` added, and give back the expiration that it took. What other queues added stays.

    A queue that dead-letters takes a message's expiration off, for whatever reason it does so.
    """
    deaths = content.headers.get(DEATHS)
    if not isinstance(deaths, list):
        return
    own = [death for death in deaths if _died_in(death, queue)]
    if not own:
        return
    others = [death for death in deaths if not _died_in(death, queue)]
    expiration = own[0].get(_EXPIRATION)
    if isinstance(expiration, str):
        content.properties.setdefault("expiration", expiration)
    _replace(content.headers, others, queue)


def _replace(headers: dict[str, Any], others: list[Any], queue: str) -> None:
    if others:
        headers[DEATHS] = others
    else:
        del headers[DEATHS]
    if headers.get("x-first-death-queue") == queue:
        _remove(headers, "x-first-death-")
    if headers.get("x-last-death-queue") == queue:
        _remove(headers, "x-last-death-")
        last = others[0] if others else None
        if isinstance(last, Mapping):
            headers.update({f"x-last-death-{name}": last[name] for name in _DETAILS if name in last})


def _remove(headers: dict[str, Any], prefix: str) -> None:
    for name in _DETAILS:
        headers.pop(f"{prefix}{name}", None)


def _died_in(death: object, queue: str) -> bool:
    return isinstance(death, Mapping) and death.get("queue") == queue
