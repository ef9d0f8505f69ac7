"""Moving what waits in a cascade into another, on the same broker or on another."""

from delaystore.transports.rabbitmq.moving.due import DueBy
from delaystore.transports.rabbitmq.moving.mover import MoveSettings, Watcher, look, move
from delaystore.transports.rabbitmq.moving.places import Place
from delaystore.transports.rabbitmq.moving.report import MoveReport

__all__ = ["DueBy", "MoveReport", "MoveSettings", "Place", "Watcher", "look", "move"]
