"""What an endpoint embeds."""

from delaystore.delivery.delivery import DelayedDelivery
from delaystore.delivery.enlisted import EnlistedDelivery

__all__ = ["DelayedDelivery", "EnlistedDelivery"]
