"""Spark's Java machine, as a process that can be ended at any moment."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from delaystore.errors import LoadError
from delaystore.spark._errors import is_fatal, with_remedy

_POLL: Final = 0.05
_PATIENCE: Final = 30
_DYING: Final = 3
"""Seconds that Java may take to end, once its connections have."""
_LAUNCHER: Final = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1"}
"""For the Java that only puts the command line together."""


class Java:
    """Java, started at most once. It ends with this process, however that ends: its standard input is closed then.

    It is in a session of its own, where a terminal's interrupts do not reach it. PySpark's own way starts it where
    nobody knows its process before it answers, which takes most of the time that Spark takes to start.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def start(self, conf: SparkConf, log: Path) -> Any:
        """The gateway to it; what it says goes to `log`. LoadError where it does not start."""
        with TemporaryDirectory(prefix="delaystore-java-", ignore_cleanup_errors=True) as folder:
            told = Path(folder, "connection")
            with log.open("ab") as out:
                self._process = subprocess.Popen(  # noqa: S603 - Spark's own script
                    _command(conf),
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    env={**_LAUNCHER, **os.environ, "SPARK_CONNECT_MODE": "0", _CONNECTION: str(told)},
                    start_new_session=True,
                )
            if self._killed:
                self.kill()
            while self._process.poll() is None and not told.exists():
                time.sleep(_POLL)
            if not told.exists():
                raise LoadError(f"Spark does not start: {_last_line(log) or 'Java ended'}")
            with told.open("rb") as stream:
                port, secret = read_int(stream), UTF8Deserializer().loads(stream)  # type: ignore[no-untyped-call]  # it has no types
        with _environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            return launch_gateway()  # type: ignore[no-untyped-call]  # it has no types

    def why_it_ended(self, log: Path) -> str | None:
        """One line with the remedy, by how it ended and what it said in `log`; None: it runs, or was ended by us."""
        if self._process is None or self._killed:
            return None
        try:
            code = self._process.wait(_DYING)
        except subprocess.TimeoutExpired:
            return None
        told = next((line for line in reversed(log.read_text(errors="replace").splitlines()) if is_fatal(line)), None)
        if told is not None:
            return with_remedy(told.strip())
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return (
                "it was killed (SIGKILL), as the kernel does where memory runs out; free memory, or give Java less, "
                "as in --conf spark.driver.memory=1g"
            )
        return f"it exited with {code}, as {_last_line(log) or 'it did not say why'}; --spark-log FILE keeps its log"

    def kill(self) -> None:
        """End it and all that it started at once, even if it starts only later. A signal handler may call it."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Wait until it has ended, as it does without standard input; kill it if that takes long."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
        finally:
            self.kill()
            self._process.wait()


_CONNECTION: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file in which Spark's gateway says how to reach it."""


def _command(conf: SparkConf) -> list[str]:
    script = os.path.join(_find_spark_home(), "bin", "spark-submit")
    settings = [part for name, value in conf.getAll() for part in ("--conf", f"{name}={value}")]
    return [script, *settings, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables of the environment for the block; they are not there otherwise."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if "rror" in line or "xception" in line]
    return (told or lines or [""])[0]
