"""Whether this process makes traces."""

from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider


def has_tracer_provider() -> bool:
    """Whether somebody has set one, as `opentelemetry-instrument` does."""
    return not isinstance(get_tracer_provider(), ProxyTracerProvider)
