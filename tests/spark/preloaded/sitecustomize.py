"""Has Spark's daemons of Python workers import delaystore before they fork them, which saves each worker a second."""

import sys

if "pyspark.daemon" in sys.orig_argv:
    from sqlalchemy import create_engine

    import delaystore.spark._source  # noqa: F401 - for the workers

    for url in ("postgresql+psycopg://", "mariadb+pymysql://", "sqlite://"):
        create_engine(url)
