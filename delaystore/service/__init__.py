"""`delaystore serve`: dispatchers, ingresses, control queues, the web page and metrics, in one process."""

__all__: list[str] = []
