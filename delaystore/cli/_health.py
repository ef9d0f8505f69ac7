"""`delaystore health`, and the report that `status` shows as well."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from delaystore.cli._broker import BrokerOptions, broker_of
from delaystore.cli._commands import Offered
from delaystore.cli._options import DEFAULT_ERROR_QUEUE, DispatchedEndpoint, JsonOption, error_queue_option
from delaystore.cli._output import about, print_document, print_line, print_note
from delaystore.errors import ConfigurationError, StoreUnavailableError, TransportError
from delaystore.text import counted, named, overdue_text, parse_duration, up_to

if TYPE_CHECKING:
    from delaystore.cli._options import OpenedEndpoint
    from delaystore.operations.overview import HealthCriteria, Overview

T = TypeVar("T")
_SHOWN: Final = (
    "waiting",
    "exact",
    "oldest_overdue",
    "failing",
    "parked",
    "paused",
    "error_queue",
    "error_queue_depth",
)
"""The document of an overview for `health --json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """The conditions of health, as given on the command line."""

    max_overdue: Annotated[
        str, typer.Option(metavar="DURATION", help="Maximum time for which a message of a healthy endpoint is overdue.")
    ] = "5m"
    require_dispatcher: Annotated[
        bool, typer.Option("--require-dispatcher", help="Report an endpoint without a running dispatcher as unhealthy.")
    ] = False
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="Maximum time in which a healthy store answers.")] = (
        "5s"
    )

    def criteria(self) -> "HealthCriteria":
        """These options as criteria. Raises ConfigurationError."""
        from delaystore.operations.overview import HealthCriteria

        return HealthCriteria(
            max_overdue=parse_duration(self.max_overdue, "--max-overdue"), dispatcher=self.require_dispatcher
        )


def shown_error_queue_option(command: str) -> Any:
    """--error-queue of a command that reports health."""
    return error_queue_option("Error queue, whose depth is shown with --transport.", command)


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What store and transport say. `problem`: the fault of the store; None: none is known."""

    problem: str | None
    overview: "Overview"

    def faults(self, criteria: "HealthCriteria") -> Sequence[str]:
        """Why it is unhealthy; empty: it is healthy."""
        own = [] if self.problem is None else [self.problem]
        return [*own, *criteria.unmet(self.overview)]

    @property
    def no_dispatcher(self) -> bool:
        """Whether something is overdue, and no dispatcher reports that it runs."""
        return bool(self.overview.overdue) and self.overview.dispatchers is not None and not self.overview.dispatchers

    def document(self, criteria: "HealthCriteria") -> dict[str, Any]:
        """The same for JSON; None: not known, or not answered in time."""
        seen, faults = self.overview, self.faults(criteria)
        return {
            "healthy": not faults,
            "problems": list(faults),
            **{name: value for name, value in seen.as_dict().items() if name in _SHOWN},
            "dispatchers": None if seen.dispatchers is None else len(seen.dispatchers),
        }

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        waiting = self.overview.waiting
        count = "not counted in time how many are" if waiting is None else about(waiting)
        overdue = self.overview.overdue
        late = "not known in time whether one is overdue" if overdue is None else overdue_text(overdue)
        return "; ".join([f"{count} waiting, {late}", *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        seen = self.overview
        if self.no_dispatcher:
            yield "no dispatcher is running"
        for each in seen.ingresses or ():
            if seen.is_offline(each):
                yield f"the ingress of {each.queue!r} is offline"
            elif each.problem is not None:
                yield f"the ingress of {each.queue!r} does not consume"
        if seen.failing is not None and seen.failing.messages:
            yield f"{up_to(seen.failing.messages, exact=seen.failing.exact)} failing"
        if seen.paused:
            yield f"paused: {named([each.name for each in seen.paused])}"
        if seen.error_queue_depth:
            yield f"the error queue holds {counted(seen.error_queue_depth, 'message')}"
        for queue, depth in {each.rejected_queue: each.rejected_depth for each in seen.ingresses or ()}.items():
            if depth:
                yield f"the rejected queue {queue!r} holds {counted(depth, 'message')}"


class Deadline:
    """Asks questions that all together may take `--timeout`; raises ConfigurationError where that is 0."""

    def __init__(self, timeout: str) -> None:
        self._seconds = parse_duration(timeout, "--timeout").total_seconds()
        if not self._seconds:
            raise ConfigurationError("--timeout is 0; give the store some time to answer, as in 5s")
        self._began = time.monotonic()

    def report(self, opened: "OpenedEndpoint") -> StoreReport:
        """The store's answer, if it comes in time; raises StoreError where it cannot be asked at all."""
        from delaystore.calls import Question
        from delaystore.operations.overview import Overview

        asked = Question("asking for the status", opened.store.status, self._seconds)
        try:
            status = asked.answer()
        except StoreUnavailableError as error:
            if not asked.too_late:
                raise
            return StoreReport(str(error), Overview(endpoint=opened.endpoint, error_queue=opened.error_queue))
        overview = opened.delivery.operations.overview(self._left)
        return StoreReport(status.read_only or "; ".join(overview.blocking_defects) or None, overview)

    def required(self, purpose: str, ask: Callable[[], T]) -> T:
        """The store's answer in the time that is left; raises StoreError."""
        from delaystore.calls import Question

        return Question(purpose, ask, self._left).answer()

    def answer(self, purpose: str, ask: Callable[[], T]) -> T | None:
        """The store's answer in the time that is left; None: there is none, or it cannot be reached."""
        from delaystore.calls import Question

        try:
            return Question(purpose, ask, self._left).answer()
        except StoreUnavailableError:
            return None

    @property
    def _left(self) -> float:
        return max(0.0, self._seconds - (time.monotonic() - self._began))


def health(
    *,
    must: HealthOptions,
    where: DispatchedEndpoint,
    on: Annotated[BrokerOptions, Offered("broker", "management")],
    error_queue: Annotated[str, shown_error_queue_option("health")] = DEFAULT_ERROR_QUEUE,
    as_json: JsonOption = False,
) -> None:
    """Check whether an endpoint is healthy.

    One line shows the number of waiting messages (estimated above 100,000), overdue and failing messages, and paused
    destinations. Failing messages and paused destinations do not make an endpoint unhealthy. With --transport the line
    includes the number of messages in the error queue. With --management a warning names an error queue
    whose messages RabbitMQ 4 drops after too many reads.
    """
    from delaystore.cli._options import reading

    criteria = must.criteria()
    deadline = Deadline(must.timeout)
    with where.open(reading(error_queue)) as opened:
        report = deadline.report(opened)
    warning = _limit_warning(replace(on, transport=where.transport), error_queue)
    faults = report.faults(criteria)
    if as_json:
        more = {"store": report.problem, "warning": warning}
        print_document(report.document(criteria) | {name: value for name, value in more.items() if value is not None})
    else:
        shown = str(report)
        if criteria.dispatcher and not report.overview.dispatchers and faults[-1] not in shown:
            shown = f"{faults[-1]}; {shown}"
        print_line(f"{'unhealthy' if faults else 'healthy'}: {shown}")
    if warning is not None:
        print_note(f"warning: {warning}")
    if faults:
        raise typer.Exit(1)


def _limit_warning(on: BrokerOptions, error_queue: str) -> str | None:
    if not (broker_of(on.broker, on.transport) and on.management):
        return None
    from delaystore.cascades.delivery_limits import limit_warning

    try:
        with on.open() as client:
            return limit_warning(client, error_queue)
    except TransportError as error:  # the state of waiting messages is shown anyway
        return f"the delivery limit of queue {error_queue!r} is unknown: {error}"
