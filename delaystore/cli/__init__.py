"""The `delaystore` command: options and words. Other packages do the work.

Each group of commands has one module. They share `_options`, `_output` and `_signals`. `_help` makes the help of all
commands from the words of `_help_texts`.
May be changed freely: everything but the names of commands and options, and the keys of JSON output.
May import: everything but `integrations` and `testing`.
"""

__all__: list[str] = []
