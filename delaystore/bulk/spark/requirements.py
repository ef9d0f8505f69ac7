"""What Spark needs to run here, checked before it fails in its own way."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delaystore.errors import ConfigurationError
from delaystore.registry import needed_for

if TYPE_CHECKING:
    from pyspark import SparkContext


# What Spark needs to run here, checked before it fails in its own way.

_LIBRARIES: Final = ("pyspark", "pyarrow")
OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT: Final = 30


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
        answer = subprocess.run(  # noqa: S603 - the Java that Spark would run
            [program, "-version"], capture_output=True, text=True, timeout=_TIMEOUT, check=True
        )
    except FileNotFoundError:
        where = f"JAVA_HOME is {home!r}, where there is no bin/java" if home else f"{program!r} is not there"
        raise ConfigurationError(f"Spark needs Java, and {where}; {advice}") from None
    except (OSError, subprocess.SubprocessError):
        raise ConfigurationError(f"Spark needs Java, and {program!r} does not run; {advice}") from None
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is not None and int(found[1]) < OLDEST_JAVA:
        raise ConfigurationError(f"Spark needs Java {OLDEST_JAVA}, and {program!r} is Java {found[1]}; {advice}")


# Which Python Spark's workers run: one that has delaystore, or an error before anything is done.
#
# Spark takes `python3` from the PATH, whatever Python the driver itself is, unless PYSPARK_PYTHON is set. The setting
# spark.pyspark.python counts for spark-submit alone (seen with Spark 4.3).

_NEEDED: Final = ("delaystore", "pyarrow", "sqlalchemy")
_QUESTION: Final = (
    "import sys; from importlib.util import find_spec; "
    "print(*sys.version_info[:2], *(name for name in sys.argv[1:] if find_spec(name) is None))"
)
_ANSWER_TIMEOUT: Final = 30


def settle_worker_python(context: "SparkContext") -> None:
    """Let workers run spark.pyspark.python, or with a local master this Python, unless PYSPARK_PYTHON says otherwise.

    Spark plans reads and writes in workers beside the driver, so their Python must be there with any master.
    Raises ConfigurationError if it is not there, lacks delaystore, or is of another version.
    """
    if "PYSPARK_PYTHON" not in os.environ:
        ours = sys.executable if (context.master or "").startswith("local") else None
        context.pythonExec = context.getConf().get("spark.pyspark.python", ours) or context.pythonExec
    program = shutil.which(context.pythonExec)
    if program == sys.executable:
        return
    fault = "there is none" if program is None else _fault(program, has_files=bool(context._python_includes))
    if fault is not None:
        where = "" if program in (None, context.pythonExec) else f" ({program})"
        raise ConfigurationError(
            f"Spark's workers are to run the Python {context.pythonExec!r}{where}, and {fault}; set PYSPARK_PYTHON to "
            f"one that has delaystore, such as {sys.executable}, and start the session again"
        )


@cache
def _fault(program: str, *, has_files: bool) -> str | None:
    """The fault of that Python; None: nothing. `has_files`: Spark brings modules of its own to the workers."""
    try:
        asked = subprocess.run(  # noqa: S603 - the Python that Spark would run
            [program, "-c", _QUESTION, *_NEEDED], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT, check=True
        )
        major, minor, *lacking = asked.stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return "it does not run"
    if (int(major), int(minor)) != sys.version_info[:2]:
        return f"it is Python {major}.{minor}, while the driver's is {sys.version_info[0]}.{sys.version_info[1]}"
    return f"it lacks {', '.join(lacking)}" if lacking and not has_files else None
