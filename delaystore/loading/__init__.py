"""Rows of files and DataFrames into a store, all or nothing: what loads share, whether Spark runs them or not.

`options` are what a user says, `files` and `rows` read, `conversion` makes messages of rows, `attempts` and `staging`
store them, and `request` is a whole load of files. All but the staging contract (`staging.abc`) and the names that
commands and Spark's writers import may be changed freely. It imports stores and transports, and never Spark.
"""

__all__: list[str] = []
