"""Loads as units: list, count, cancel, pause and resume their messages."""

from collections.abc import Callable, Sequence
from datetime import datetime

from delaystore.errors import ConfigurationError
from delaystore.filters import MessageFilter
from delaystore.operations._search import CountListener, EndpointAccess, check_pause_end
from delaystore.operations.changes import OperationListener
from delaystore.stores.operable import StoreWithLoads
from delaystore.stores.records import ChangeAction, Load, Operation


class Loads:
    """The loads of an endpoint; made by `Operations.loads`.

    A load is all messages that one run of `delaystore load`, `send --file` or `df.write` has stored, or a stream with
    all its batches. To search, count or reschedule its messages, use `MessageFilter(load=load_id)`.

    Args:
        access: The endpoint.
        begin_cancel: Begins an operation that cancels all messages that match a filter.
        run: Runs it.

    Raises:
        ConfigurationError: By all methods, where the store knows no loads; by `begin_cancel`, `cancel`, `pause` and
            `resume`, where an earlier release has stored the load.
        UnknownLoadError: By those about a load, where there is none of that id.
        StoreSetupError: By these, where its tables are of an earlier release; call `setup_infrastructure`.
        StoreError: By these, when the store fails.

    Example:
        ::

            loads = delivery.operations.acting_as("ada").loads
            loads.pause("spring", until=monday)
            print(loads.get("spring").waiting)

    """

    def __init__(
        self, access: EndpointAccess, begin_cancel: Callable[..., Operation], run: Callable[..., Operation]
    ) -> None:
        self._access, self._begin_cancel, self._run = access, begin_cancel, run

    def list(self, limit: int = 20) -> Sequence[Load]:
        """List the loads that were begun last; of each it counts no more than 100,000 waiting messages.

        Args:
            limit: Maximum number of loads.

        Returns:
            The loads, the newest first.

        """
        store = self._store()
        with self._access.call("listing loads"):
            return store.loads(limit)

    def get(self, load_id: str) -> Load:
        """Look up a load, and count its messages.

        Args:
            load_id: Its id; of a stream the id of its query.

        Returns:
            The load.

        """
        store = self._store()
        with self._access.call("counting the messages of a load"):
            return store.load(load_id)

    def paused(self) -> Sequence[str]:
        """The ids of paused loads, in order."""
        store = self._store()
        with self._access.call("listing paused loads"):
            return store.paused_loads()

    def begin_cancel(self, load_id: str, *, operation_id: str | None = None) -> Operation:
        """Note that a load is cancelled, and keep in the store that its messages are to be; `Operations.run` does it.

        The load is paused until all its messages are cancelled, or the operation is abandoned. A run of the load that
        has not stored anything yet stores nothing. A later run of the same id is refused, unless its option `again` is
        true. A stream goes on, and is not paused: only the messages that it has stored by now are cancelled.

        Args:
            load_id: Its id.
            operation_id: An id that no operation has, for callers that may be interrupted; None: a new one.

        Returns:
            The operation.

        """
        self._store()
        return self._begin_cancel(MessageFilter(load=load_id), operation_id=operation_id)

    def cancel(self, load_id: str, progress: OperationListener | None = None) -> Operation:
        """Cancel a load: `begin_cancel` and `Operations.run`.

        It does not reach messages that were delivered, or that are in the error queue. If messages are being
        dispatched, it tries them again after a second, as long as fewer are left each time. Messages that still wait
        at the end are counted as held, and the load stays paused.

        Args:
            load_id: Its id.
            progress: As for `Operations.run`.

        Returns:
            The operation as it has ended.

        """
        return self._run(self.begin_cancel(load_id).operation_id, progress)

    def pause(self, load_id: str, *, until: datetime | None = None, progress: CountListener | None = None) -> int:
        """Have all dispatchers keep the messages of a load from now on, and park due messages.

        Args:
            load_id: Its id.
            until: When it resumes automatically, an aware datetime, in place of an earlier pause's; None: never.
            progress: As for `Operations.pause`.

        Returns:
            How many messages were parked.

        Raises:
            InvalidMessageError: `until` is past, or has no time zone.
            ConfigurationError: It was stored or cancelled, and none of its messages waits any more.

        """
        store, access = self._store(), self._access
        with access.call("pausing a load"):
            now = store.now()
            check_pause_end(until, now)
            change = access.actor.change(ChangeAction.PAUSE)
            store.pause_load(load_id, by=access.actor.by, until=until, change=change)
        return access.in_steps("parking messages", lambda: store.park(now), progress)

    def resume(self, load_id: str, *, progress: CountListener | None = None) -> int:
        """Let the messages of a load go again, also parked ones, except to a destination that is paused.

        Args:
            load_id: Its id.
            progress: As for `pause`.

        Returns:
            How many parked messages there were; 0 also where it was not paused.

        """
        store, access = self._store(), self._access
        with access.call("resuming a load"):
            change = access.actor.change(ChangeAction.RESUME)
            store.resume_load(load_id, by=access.actor.by, change=change)
        return access.show_parked(store, progress)

    def _store(self) -> StoreWithLoads:
        store = self._access.operable()
        if not isinstance(store, StoreWithLoads):
            raise ConfigurationError(f"{type(store).__name__} knows no loads; use a SQL store")
        return store
