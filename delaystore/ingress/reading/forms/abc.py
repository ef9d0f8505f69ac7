"""The contract of delay forms."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import ClassVar, NamedTuple

from delaystore.ingress.reading.content import IncomingContent
from delaystore.ingress.reading.incoming import SagaCleared


class Delay(NamedTuple):
    """The delay that a form has read from a message.

    `due_time`: as it says, perhaps in the past. `destination`: where it is to go; None: the form does not say.
    `message_id`: under which it is stored and forwarded; None: its own. `taken_off`: whether the forwarded message no
    longer asks for the delay.
    """

    due_time: datetime
    destination: str | None = None
    message_id: str | None = None
    taken_off: bool = False


class DelayForm(ABC):
    """One form. It has no state."""

    name: ClassVar[str]
    """As users write it."""
    reaches_others: ClassVar[bool] = False
    """Whether a message of this form may go to any queue, or cancel other senders' messages."""

    @abstractmethod
    def read(self, content: IncomingContent, start: datetime) -> Delay | SagaCleared | None:
        """Read the delay that a message asks for in this form; None: it asks for none.

        `start`: when the delay began. Headers that are to be others when the message is forwarded are changed.
        Raises RejectedMessageError for a header of this form that cannot be read.
        """
