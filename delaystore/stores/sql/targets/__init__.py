"""Other people's transactions, in which a store can write."""

from delaystore.stores.sql.targets._drivers import DriverConnectionAdapter, LentConnection, LentConnectionTarget, Target
from delaystore.stores.sql.targets._opening import target_of

__all__ = ["DriverConnectionAdapter", "LentConnection", "LentConnectionTarget", "Target", "target_of"]
