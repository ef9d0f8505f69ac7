"""Has Spark's daemons of Python workers import delaystore before they fork them, which saves each worker a second."""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import alembic.migration
    import alembic.operations
    import alembic.script  # noqa: F401 - all for the workers
    from sqlalchemy import create_engine

    for url in ("postgresql+psycopg://", "mariadb+pymysql://", "sqlite://"):
        create_engine(url)
