"""Rows of files and DataFrames become messages, and go into a store all or nothing.

Files are read and converted here, staged, and promoted in one transaction; `spark` has the parts that only Spark needs.
May be changed freely: everything but the options that people write, and the tables of unfinished loads.
May import: the ground, `stores`, `transports`, `migrations`.
"""

__all__: list[str] = []
