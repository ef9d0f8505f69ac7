"""Long-running processes: `delaystore serve` and its configuration, the web page, the JSON API, telemetry.

A service runs components, starts dead ones again, and reads its configuration strictly.
May be changed freely: everything but keys of the configuration, paths of the API, and names of metrics.
May import: everything but `cli`, `integrations` and `testing`.
"""

__all__: list[str] = []
