"""Under which conditions numbers were measured."""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

import psutil

from benchmarks.arena import Arena
from benchmarks.bench import BODY_BYTES

_PACKAGES: Final = ("delaystore", "psycopg", "pika", "sqlalchemy", "pyspark", "pyarrow")


def conditions(arena: Arena) -> Mapping[str, str]:
    """Versions, the settings that durability hangs on as the servers tell them, and the machine."""
    settings = arena.settings()
    return {
        "python": platform.python_version(),
        **{
            package: version(package)
            for package in ("delaystore", "psycopg", "pika", "sqlalchemy", "pyspark", "pyarrow")
        },
        "postgresql": settings["server_version"],
        "rabbitmq": settings["rabbitmq"],
        "synchronous_commit": settings["synchronous_commit"],
        "fsync": settings["fsync"],
        "confirms": "on",
        "queue": "quorum, one node",
        "body": f"{BODY_BYTES} bytes",
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {_system()}",
    }


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform()
