"""The `delaystore` command: options and words; what is done, other packages do.

One module for each group of commands; `_options`, `_output` and `_signals` are what they share.
May be changed freely: everything but the names of commands and options, and the keys of JSON output.
May import: everything but `integrations` and `testing`.
"""

__all__: list[str] = []
