"""Waiting for servers that cannot be reached when a command starts."""

from collections.abc import Callable
from typing import Final

from delaystore.cli._output import say
from delaystore.errors import StoreUnavailableError, TransportUnavailableError

_LONGEST_PAUSE: Final = 5
"""Seconds between two attempts, in the end."""
_OUTAGES: Final = (StoreUnavailableError, TransportUnavailableError)


def when_reached(server: str, step: Callable[[], object], *, fail_fast: bool) -> None:
    """Do `step` as soon as `server` can be reached; each reason why not is told once.

    `fail_fast`: try once only. Raises what `step` raises, but outages only if `fail_fast`.
    """
    from tenacity import (
        RetryCallState,
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        stop_never,
        wait_exponential,
        wait_random,
    )

    told: set[str] = set()

    def tell(state: RetryCallState) -> None:
        reason = str(state.outcome.exception() if state.outcome else "")
        if reason not in told:
            say(f"waiting for {server}: {reason} (--fail-fast ends instead)")
        told.add(reason)

    Retrying(
        retry=retry_if_exception_type(_OUTAGES),
        wait=wait_exponential(multiplier=0.5, max=_LONGEST_PAUSE) + wait_random(0, 0.5),
        stop=stop_after_attempt(1) if fail_fast else stop_never,
        before_sleep=tell,
        reraise=True,
    )(step)
