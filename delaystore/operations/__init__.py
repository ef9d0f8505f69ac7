"""What operators do with waiting messages: search, change, pause, export; and the error queue.

`changes` is the one service for changes of a waiting message, `_operations` for those of many: the command line, the
page, the API, the control queue and integrations call them. The audit entry is written in the change's own transaction.
May be changed freely: everything but the names that programs reach through `DelayedDelivery.operations`.
May import: the ground, `stores`, `transports`, `dispatcher`.
"""

from delaystore.operations._operations import Operations, new_operation_id
from delaystore.operations._search import CountListener, EndpointAccess, Export, Preview
from delaystore.operations.changes import OperationListener
from delaystore.operations.error_queue import ErrorGroups, ErrorPage, ErrorQueue
from delaystore.operations.failed_message import ErrorFilter, ErrorGroup, ErrorReport, FailedMessage
from delaystore.operations.loads import Loads
from delaystore.operations.overview import HealthCriteria, Overview, Recent

__all__ = [
    "CountListener",
    "EndpointAccess",
    "ErrorFilter",
    "ErrorGroup",
    "ErrorGroups",
    "ErrorPage",
    "ErrorQueue",
    "ErrorReport",
    "Export",
    "FailedMessage",
    "HealthCriteria",
    "Loads",
    "OperationListener",
    "Operations",
    "Overview",
    "Preview",
    "Recent",
    "new_operation_id",
]
