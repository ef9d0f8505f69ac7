"""What an endpoint embeds."""

from delaystore.delivery._async import AsyncDelayedDelivery, AsyncEnlistedDelivery
from delaystore.delivery._async_operations import AsyncOperations
from delaystore.delivery._delivery import DelayedDelivery
from delaystore.delivery._enlisted import EnlistedDelivery

__all__ = ["AsyncDelayedDelivery", "AsyncEnlistedDelivery", "AsyncOperations", "DelayedDelivery", "EnlistedDelivery"]
