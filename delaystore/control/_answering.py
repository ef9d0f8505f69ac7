"""Doing requests, a batch at a time, and answering them."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from delaystore.control._commands import Asked
from delaystore.control._given import cut
from delaystore.control._problems import ProblemCode, RequestError
from delaystore.control.protocol import Answer, Protocol, problem_answer
from delaystore.errors import DelaystoreError, DurabilityUnknownError, StoreSetupError, StoreUnavailableError
from delaystore.operations import Operations
from delaystore.stores.operable import Way

logger = logging.getLogger("delaystore.control")


class Request(NamedTuple):
    """A request as it came: JSON, and who sent it."""

    body: bytes
    by: str


class Answering:
    """Does requests with the store of `operations`. Used by one thread.

    `on_rescheduled`: called with the earliest new due time of each transaction; None: nobody is told.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        with_bodies: bool,
        on_rescheduled: Callable[[datetime], object] | None = None,
    ) -> None:
        self._operations = operations.acting_as(way=Way.CONTROL)
        self._on_rescheduled = on_rescheduled
        self._protocol = Protocol(operations.endpoint, with_bodies=with_bodies)

    def answer(self, requests: Sequence[Request]) -> Sequence[Answer]:
        """Do the first of `requests`, one at least, in one transaction, and return the answers to these.

        Raises StoreUnavailableError, StoreSetupError: the store does nothing at present, and nothing was done;
        DurabilityUnknownError: it is done, and may be lost yet, so that it is to be done again. What the store refuses
        is found by halves, and answered by itself.
        """
        most = len(requests)
        while True:
            try:
                return self._answer(requests[:most])
            except (StoreUnavailableError, StoreSetupError, DurabilityUnknownError):
                raise
            except Exception as error:
                if most == 1:
                    return [_refused(error)]
                most //= 2

    def _answer(self, requests: Sequence[Request]) -> Sequence[Answer]:
        now = self._operations.now()
        read = [self._protocol.read(body, Asked(by=by, now=now)) for body, by in requests]
        wanted = [one.request for one in read if not isinstance(one, Answer)]
        done = self._operations.do_all(wanted) if wanted else ()
        self._tell([result.due_time for result in done if result.due_time is not None])
        results = iter(done)
        answers: list[Answer] = []
        for one in read:
            if isinstance(one, Answer):
                answers.append(one)
            elif (result := next(results, None)) is not None:
                answers.append(one.answer(result))
            else:
                break  # as many were done as bodies fit into memory
        return answers

    def _tell(self, due_times: Sequence[datetime]) -> None:
        if due_times and self._on_rescheduled is not None:
            self._on_rescheduled(min(due_times))


def _refused(error: Exception) -> Answer:
    """The answer to a request that the store refuses, or that nobody has thought of."""
    if isinstance(error, DelaystoreError):
        return problem_answer(RequestError(ProblemCode.REFUSED, cut(str(error))))
    logger.error("unexpected %s while a request was done", type(error).__name__, exc_info=error)
    return problem_answer(RequestError(ProblemCode.REFUSED, f"unexpected {type(error).__name__}; the log says more"))
