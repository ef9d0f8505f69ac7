"""Long-running processes: `delaystore serve` and its configuration, the web page, the JSON API, telemetry.

`runner` runs components and starts dead ones again, `endpoints` and `components` are them; `configuration` is read
strictly; `web` is the page and the API, `telemetry` metrics and traces.
May be changed freely: everything but keys of the configuration, paths of the API, and names of metrics.
May import: everything but `cli`, `integrations` and `testing`.
"""

__all__: list[str] = []
