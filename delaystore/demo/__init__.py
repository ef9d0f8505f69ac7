"""The demo: messages scheduled, waiting, dispatched, received and compared."""

from delaystore.demo._endpoint import DemoEndpoint, demo_endpoint
from delaystore.demo._report import DemoReport
from delaystore.demo._run import Demo

__all__ = ["Demo", "DemoEndpoint", "DemoReport", "demo_endpoint"]
