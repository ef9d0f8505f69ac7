"""OpenTelemetry's metrics and traces of sending and dispatching."""

from delaystore.registry import needed_for

with needed_for("delaystore.server.telemetry"):
    from delaystore.server.telemetry._metrics import OpenTelemetryMetrics
    from delaystore.server.telemetry.traces import OpenTelemetryObserver
from delaystore.server.telemetry._server import MetricsServer

__all__ = ["MetricsServer", "OpenTelemetryMetrics", "OpenTelemetryObserver"]
