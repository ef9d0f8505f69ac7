"""The error queue, as pages and the API have it: replayed and discarded in the background."""

from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request

from delaystore.amounts import counted
from delaystore.errors import ConfigurationError, TransportError
from delaystore.operations import Operations
from delaystore.operations.error_groups import ErrorFilter
from delaystore.operations.error_queue import ErrorGroups, ErrorPage
from delaystore.operations.error_report import ErrorReport
from delaystore.operations.failed_message import FailedMessage
from delaystore.web.forms import Fields, id_of
from delaystore.web.jobs import BackgroundJob
from delaystore.web.site import Site, site_of

EXAMINED: Final = 5_000
"""Messages that one page looks at, at most."""
FURTHEST: Final = 1_000_000
"""Messages that a page may skip."""
PATIENCE: Final = 30.0
"""Seconds: a look at a long queue takes a while."""
FIELDS: Final = ("destination", "kind", "reason", "message_id")
"""Of a filter, as forms and addresses have them; an empty destination: nothing says where a message was to go."""


def wanted_of(fields: Fields) -> ErrorFilter:
    """The filter in the fields of an address or a form."""
    given: dict[str, Any] = {name: id_of(fields, name) for name in FIELDS if name in fields}
    return ErrorFilter(**given)


def groups(operations: Operations) -> ErrorGroups | None:
    """What is in the error queue; None: there is no such queue."""
    return None if operations.errors.depth() is None else operations.errors.groups(examine=EXAMINED)


def page(operations: Operations, wanted: ErrorFilter, skip: int, limit: int) -> ErrorPage:
    """Failed messages, without their bodies; none where there is no error queue."""
    if operations.errors.depth() is None:
        return ErrorPage(messages=(), depth=0, examined=0, next_skip=None)
    return operations.errors.messages(wanted, limit=limit, skip=skip, examine=max(EXAMINED, skip + limit))


def message(operations: Operations, message_id: str) -> FailedMessage | None:
    """One failed message; None: it is not among those that are looked at, or there is no error queue."""
    if operations.errors.depth() is None:
        return None
    return operations.errors.get(message_id, examine=EXAMINED)


def begin(
    request: Request, action: str, wanted: ErrorFilter, destination: str | None = None, limit: int | None = None
) -> BackgroundJob:
    """Begin to `replay` or `discard`. Raises ConfigurationError without a transport, and where too much goes on."""
    site = site_of(request)
    operations = site.operations(request)
    errors = operations.errors

    about = "Replaying failed messages" if action == "replay" else "Discarding failed messages"
    job = BackgroundJob(about=about, by=operations.by, path="/errors")

    def do(_progress: Callable[[int], None]) -> str:
        def told(_step: str, done: int, _total: int | None) -> None:
            job.done = done

        named: dict[str, Any] = {"limit": limit, "progress": told, "stopping": lambda: site.stopping}
        if action == "replay":
            report = errors.replay(wanted, destination=destination, **named)
        else:
            report = errors.discard(wanted, **named)
        job.done = report.done
        site.cached.forget()
        return _result(action, report)

    return site.jobs.begin(job, do)


def _result(action: str, report: ErrorReport) -> str:
    done = "sent again" if action == "replay" else "discarded"
    parts = [f"{counted(report.done, 'message')} {done}"]
    parts += [f"{counted(count, 'message')} left: {why}" for why, count in report.left.items()]
    if report.perhaps_twice:
        parts.append(f"{counted(report.perhaps_twice, 'message')} may be there twice")
    if report.problem is not None:
        raise TransportError("; ".join([*parts, report.problem]))
    return "; ".join(parts)


def why_none(site: Site) -> str | None:
    """Why this page has no error queue; None: it has."""
    try:
        site.delivery.operations.errors  # noqa: B018 - it raises where there is none
    except ConfigurationError as error:
        return str(error)
    return None
