"""What the parts of one dispatcher share."""

from delaystore.dispatcher._activity import RecentActivity
from delaystore.dispatcher._destinations import KnownDestinations
from delaystore.dispatcher._error_queue import ErrorQueue
from delaystore.dispatcher._operability import Operability
from delaystore.dispatcher.breakers import Breakers
from delaystore.dispatcher.health import Tally
from delaystore.dispatcher.observer import DispatchObserver, guarded
from delaystore.dispatcher.store_calls import StoreCalls
from delaystore.settings import DelayedDeliverySettings, TransactionMode
from delaystore.stores.abc import DelayedMessageStore
from delaystore.transports.abc import Transport


class DispatchContext:
    """Store, transport, settings and common state of one dispatcher; its threads share it."""

    def __init__(
        self,
        store: DelayedMessageStore,
        transport: Transport,
        settings: DelayedDeliverySettings,
        observer: DispatchObserver | None = None,
    ) -> None:
        self.store = store
        self.transport = transport
        self.settings = settings
        self.exactly_once = settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE
        self.observer = guarded(observer)
        self.breakers = Breakers(settings, None if self.observer is None else self.observer.breaker_changed)
        self.store_calls = StoreCalls(self.breakers.fetch, settings.store_timeout)
        self.error_queue = ErrorQueue(transport, settings)
        self.tally = Tally()
        self.operability = Operability(store, self.store_calls)
        self.destinations = KnownDestinations(self.operability, self.store_calls)
        self.activity = RecentActivity()
