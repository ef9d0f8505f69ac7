"""How many messages may go to limited destinations."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from delaystore.calls import Question
from delaystore.dispatcher._operability import Operability
from delaystore.dispatcher.store_calls import StoreCalls
from delaystore.errors import StoreUnavailableError
from delaystore.stores.operable import Allowance, OperableDelayedMessageStore

logger = logging.getLogger("delaystore.dispatcher")

PATIENCE: Final = 1.0
"""Seconds that a pass waits for an allowance: as long as its messages are claimed."""
ALONE: Final = 60.0
"""Seconds in which passes ask for nothing once there was no answer."""


class Limits:
    """Asks the store what may go to limited destinations. Threads may share it.

    A pass asks while its own transaction is open, beside it: on another connection, from another thread, since the
    pool may have none left, and the pass would wait for itself. In SQLite nobody is kept from writing meanwhile: a pass
    writes only after it has sent. Where there is no answer in time, the pass leaves such messages as they are, and what
    they need is asked for before the next fetch, on the connection that is free then.

    So each message that goes was granted by the store, whichever dispatcher asked: over all dispatchers `max_rate` in
    each second, once those of one second have gone at once. A granted message that does not arrive, or that another
    dispatcher has taken meanwhile, counts as gone: then it is less.
    """

    def __init__(
        self, operability: Operability, store_calls: StoreCalls, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._operability = operability
        self._store_calls = store_calls
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._alone_until = 0.0
        self._wanted: Counter[str] = Counter()
        """Messages seen, by destination, for which the store is to be asked before the next fetch."""
        self._answers: dict[str, Allowance] = {}
        """What was asked for before the fetch."""

    def ask_ahead(self) -> None:
        """Ask for what a pass got no answer about; call it before a fetch. Raises what the store raises."""
        if not self._wanted:
            return
        with self._lock:
            wanted, self._wanted = self._wanted, Counter()
        store = self._operability.ask()
        if store is None:
            return
        for destination, count in wanted.items():
            with self._store_calls.call("asking what a limited destination may get"):
                allowance = store.allowance(destination, count)
            with self._lock:
                self._answers[destination] = allowance

    def allowances(self, wanted: Mapping[str, int]) -> Mapping[str, Allowance]:
        """The allowance of each destination for so many messages; of those that are missing, ask again later."""
        with self._lock:
            found = {name: self._answers.pop(name) for name in wanted if name in self._answers}
        missing = {name: count for name, count in wanted.items() if name not in found}
        store = self._operability.found
        if missing and store is not None:
            found |= self._ask_beside(store, missing)
        with self._lock:
            self._wanted.update({name: count for name, count in missing.items() if name not in found})
        return found

    def want(self, destination: str, count: int) -> None:
        """Have more asked for before the next fetch."""
        with self._lock:
            self._wanted[destination] += count

    def _ask_beside(self, store: OperableDelayedMessageStore, wanted: Mapping[str, int]) -> Mapping[str, Allowance]:
        if self._monotonic() < self._alone_until:
            return {}

        def ask() -> Mapping[str, Allowance]:
            return {name: store.allowance(name, count) for name, count in wanted.items()}

        try:
            question = Question("asking what limited destinations may get", ask, PATIENCE)
        except RuntimeError:  # no thread can be started
            return {}
        try:
            return question.answer()
        except StoreUnavailableError as error:
            self._alone_until = self._monotonic() + ALONE
            logger.warning(
                "no answer to what limited destinations may get: %s; asked before the fetches from now on. Is the "
                "engine's pool large enough, with a connection more than the dispatcher's two?",
                error,
            )
            return {}
