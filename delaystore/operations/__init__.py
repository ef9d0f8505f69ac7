"""What operators do with what waits: search, change by filter, pause; and how an endpoint is doing."""

from delaystore.operations._access import Access
from delaystore.operations._operations import Operations
from delaystore.operations._pauses import CountListener
from delaystore.operations._search import Export, Preview
from delaystore.operations.changes import OperationListener
from delaystore.operations.demands import Demands
from delaystore.operations.error_groups import ErrorFilter, ErrorGroup
from delaystore.operations.error_queue import ErrorGroups, ErrorPage, ErrorQueue
from delaystore.operations.error_report import ErrorReport
from delaystore.operations.failed_message import FailedMessage
from delaystore.operations.overview import Overview
from delaystore.operations.recent import Recent

__all__ = [
    "Access",
    "CountListener",
    "Demands",
    "ErrorFilter",
    "ErrorGroup",
    "ErrorGroups",
    "ErrorPage",
    "ErrorQueue",
    "ErrorReport",
    "Export",
    "FailedMessage",
    "OperationListener",
    "Operations",
    "Overview",
    "Preview",
    "Recent",
]
