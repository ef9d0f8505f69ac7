"""What operators do with what waits: search, change by filter, pause; and how an endpoint is doing."""

from delaystore.operations._access import Access
from delaystore.operations._bulk import OperationListener
from delaystore.operations._operations import Operations
from delaystore.operations._pauses import CountListener
from delaystore.operations._search import Export, Preview
from delaystore.operations.overview import Overview

__all__ = ["Access", "CountListener", "Export", "OperationListener", "Operations", "Overview", "Preview"]
