"""Rows of files and exports, as messages: what migrations, Spark's pipelines and bulk loads read alike.

`files` opens files, `reader` makes messages of records, `times` reads due times and delays, `nservicebus` its headers,
`pickles` plain data out of pickles. It imports the ground alone, and libraries such as pyarrow only when it needs them.
"""

__all__: list[str] = []
