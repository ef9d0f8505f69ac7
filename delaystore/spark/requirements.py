"""What Spark needs to run here, checked before it fails in its own way."""

import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Final

from delaystore.errors import ConfigurationError
from delaystore.extras import needed_for

_LIBRARIES: Final = ("pyspark", "pyarrow")
OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_PATIENCE: Final = 30


def check_libraries() -> None:
    """MissingDependencyError without PySpark or pyarrow."""
    for library in _LIBRARIES:
        with needed_for("Spark", "spark"):
            import_module(library)


def check_spark_can_run() -> None:
    """MissingDependencyError without PySpark or pyarrow, ConfigurationError without a Java that Spark 4 takes.

    Under spark-submit, Java runs already.
    """
    check_libraries()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        _check_java()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install Java {OLDEST_JAVA} or later (apt-get install openjdk-17-jre-headless), or set JAVA_HOME to it"
    if program is None:
        raise ConfigurationError(f"Spark needs Java, and there is none; {advice}")
    try:
        told = subprocess.run(  # noqa: S603 - the Java that Spark would run
            [program, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except FileNotFoundError:
        where = f"JAVA_HOME is {home!r}, where there is no bin/java" if home else f"{program!r} is not there"
        raise ConfigurationError(f"Spark needs Java, and {where}; {advice}") from None
    except (OSError, subprocess.SubprocessError):
        raise ConfigurationError(f"Spark needs Java, and {program!r} does not run; {advice}") from None
    found = _VERSION.search(told.stderr + told.stdout)
    if found is not None and int(found[1]) < OLDEST_JAVA:
        raise ConfigurationError(f"Spark needs Java {OLDEST_JAVA}, and {program!r} is Java {found[1]}; {advice}")
