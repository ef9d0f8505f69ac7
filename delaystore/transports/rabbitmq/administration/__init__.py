"""Creating, checking and deleting delay cascades on a broker."""

from delaystore.transports.rabbitmq.administration.broker import Administered

__all__ = ["Administered"]
