"""OpenTelemetry's metrics and traces of sending and dispatching."""

from delaystore.extras import needed_for

with needed_for("delaystore.telemetry"):
    from delaystore.telemetry._metrics import OpenTelemetryMetrics
    from delaystore.telemetry._observer import OpenTelemetryObserver
from delaystore.telemetry._server import MetricsServer

__all__ = ["MetricsServer", "OpenTelemetryMetrics", "OpenTelemetryObserver"]
