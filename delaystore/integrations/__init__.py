"""Adapters for other frameworks, a package for each, which imports its framework when it is used.

May be changed freely: everything but the names that each package offers.
May import: everything but `cli`, `server` and `testing`.
"""

__all__: list[str] = []
