"""Delay forms by name, as users write them."""

from collections.abc import Sequence
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.forms.abc import DelayForm
from delaystore.ingress.reading.forms.amqp1 import Amqp1Form
from delaystore.ingress.reading.forms.due_time import DueTimeForm
from delaystore.ingress.reading.forms.nservicebus import NServiceBusForm
from delaystore.ingress.reading.forms.x_delay import XDelayForm
from delaystore.ingress.settings import QUEUE_ENDING

FORMS: Final[tuple[DelayForm, ...]] = (XDelayForm(), Amqp1Form(), DueTimeForm(), NServiceBusForm())
"""All there are, in the order in which they are tried."""
_BY_NAME: Final = {form.name: form for form in FORMS}
_TIMEOUTS: Final = ".Timeouts"
"""How the names of queues end that NServiceBus' endpoints send timeouts to."""


def is_for_timeouts(*names: str) -> bool:
    """Whether one of these names, of an ingress' queue or exchange, belongs to a queue for NServiceBus' timeouts."""
    return any(name.removesuffix(QUEUE_ENDING).endswith(_TIMEOUTS) for name in names)


def usual_forms(*names: str) -> tuple[DelayForm, ...]:
    """The forms of an ingress for which none are named. `names`: of its queue, and of its exchange.

    A form that can reach other queues is used only if a name says that the ingress is for NServiceBus' timeouts.
    Through any other ingress, a publisher can reach no other queue.
    """
    return tuple(form for form in FORMS if not form.reaches_others or is_for_timeouts(*names))


def parse_forms(given: str | Sequence[str], option: str) -> tuple[DelayForm, ...]:
    """The forms that a list names, or a text with commas, in that order.

    Raises ConfigurationError naming `option` for a name that is none or comes twice, and for an empty list.
    """
    names = [name.strip().lower() for name in (given.split(",") if isinstance(given, str) else given)]
    known = f"there are {', '.join(_BY_NAME)}"
    if not any(names):
        raise ConfigurationError(f"{option} names no delay form; {known}")
    for name in names:
        if name not in _BY_NAME:
            raise ConfigurationError(f"{option} {name!r} is no delay form; {known}")
        if names.count(name) > 1:
            raise ConfigurationError(f"{option} names {name} twice; name each format once")
    return tuple(_BY_NAME[name] for name in names)
