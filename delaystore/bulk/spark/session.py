"""A Spark session for one command, which leaves the terminal alone."""

import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from delaystore.bulk.spark._errors import cause_of, is_fatal, with_remedy
from delaystore.bulk.spark.requirements import check_spark_can_run
from delaystore.errors import ConfigurationError, LoadError

# Spark's Java machine, as a process that can be ended at any moment.

_POLL: Final = 0.05
_END_TIMEOUT: Final = 30
_DYING: Final = 3
"""Seconds that Java may take to end, once its connections have."""
_LAUNCHER: Final = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1"}
"""For the Java that only puts the command line together."""


class Java:
    """Java, started at most once. It ends with this process, however that ends: its standard input is closed then.

    It is in a session of its own, where a terminal's interrupts do not reach it. PySpark's own way starts it where
    its process is unknown before it answers, which takes most of the time that Spark takes to start.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def start(self, conf: SparkConf, log: Path) -> Any:
        """The gateway to it; its output goes to `log`. LoadError where it does not start."""
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
        """One line with the remedy, by its exit code and its output in `log`; None: it runs, or was ended by us."""
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
                self._process.wait(_END_TIMEOUT)
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


# A Spark session for one command, which leaves the terminal alone.

LOCAL: Final = "local[*]"
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
}
_HERE: Final = {
    "spark.sql.shuffle.partitions": "16",  # of 200, the default, most are empty, and each costs its time
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""For a local master: nothing of it is for the network."""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of what spark-submit runs."""
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that does little: the better compiler and collector cost it a third of the processor's time."""
_OPTIONS_OF_JAVA: Final = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"})
"""Where the user's own options are, which ours must not contradict: Java would not start."""
_LEAST_HEAP: Final = 1024
"""Megabytes."""
_MEMORY_OF_GROUP: Final = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container."""
_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def is_running() -> bool:
    """Whether there is a session already, or spark-submit's Java, so that none must be started."""
    return SparkContext._active_spark_context is not None or _SUBMITTED in os.environ


@contextmanager
def spark_session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
    java: Java | None = None,
    *,
    small: bool = False,
) -> Iterator[SparkSession]:
    """The session that there is (under spark-submit, in a notebook), or one that ends with the block.

    `master`: None: the one that there is, or local[*]. `settings`: Spark's, over ours. `log`: a file for what Spark
    says; None: it is lost. `java`: what starts it, so that it can be killed; None: it is not killed.
    `small`: there is little to do.
    Raises ConfigurationError where Spark cannot run, LoadError where it does not start.
    """
    running = SparkContext._active_spark_context
    if running is not None:
        if master is not None and master != running.master:
            raise ConfigurationError(f"Spark runs here already, with the master {running.master}; name no other")
        yield SparkSession.builder.getOrCreate()
        return
    check_spark_can_run()
    if _SUBMITTED in os.environ:
        with _session(_configured(master, settings)) as session:
            yield session
        return
    with TemporaryDirectory(prefix="delaystore-load-", ignore_cleanup_errors=True) as folder:
        conf = _configured(master or LOCAL, settings, Path(folder), small=small)
        with _running(java or Java(), conf, log or Path(folder, "spark.log")), _session(conf) as session:
            yield session


def _configured(
    master: str | None, settings: Mapping[str, str] | None, folder: Path | None = None, *, small: bool = False
) -> SparkConf:
    conf = SparkConf(loadDefaults=folder is None)
    conf.setAppName("delaystore load")
    if master is not None:
        conf.setMaster(master)
    given: dict[str, str] = {}  # spark-submit has its own
    if folder is not None:
        log4j = folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        quick = f" {_QUICK}" if small and not _OPTIONS_OF_JAVA & os.environ.keys() else ""
        given |= {
            **_QUIET,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}{quick}",
        }
        if not _has_own_memory():
            given["spark.driver.memory"] = f"{_heap()}m"
    if master is not None and master.startswith("local"):
        given |= _HERE
        os.environ.setdefault("PYSPARK_PYTHON", (settings or {}).get("spark.pyspark.python", sys.executable))
    return conf.setAll(list({**given, **(settings or {})}.items()))


def _heap() -> int:
    """Megabytes for Java: a quarter of this computer's, as Java itself would take; Spark's own default is 1,024."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # there is no such group, or its limit is "max"
        memory = min(memory, int(_MEMORY_OF_GROUP.read_text()))
    return max(_LEAST_HEAP, memory // 4 // 2**20)


def _has_own_memory() -> bool:
    """Whether the user's surroundings say how much Java gets."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    with suppress(OSError):
        if "spark.driver.memory" in Path(folder, "spark-defaults.conf").read_text(errors="replace"):
            return True
    return "SPARK_DRIVER_MEMORY" in os.environ


@contextmanager
def _running(java: Java, conf: SparkConf, log: Path) -> Iterator[None]:
    """Spark's Java machine for the block."""
    gateway: Any = None
    # When Java ends, py4j logs pages, some of them by the root logger; `load` reports one line.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        gateway = java.start(conf, log)
        SparkContext._ensure_initialized(gateway=gateway)
        try:
            yield
        except Exception:
            if not _answers(gateway) and (reason := java.why_it_ended(log)) is not None:
                raise LoadError(f"Spark's Java ended: {reason}") from None
            raise
    finally:
        logging.getLogger().removeFilter(_is_not_of_py4j)
        SparkContext._gateway = SparkContext._jvm = None
        with suppress(Exception):  # it may have ended by itself
            gateway.shutdown()
        java.end()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _answers(gateway: Any) -> bool:
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except Exception:
        return False
    return True


@contextmanager
def _session(conf: SparkConf) -> Iterator[SparkSession]:
    try:
        _make_context(conf)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        # When Java ends, the server's own handler prints a traceback to the terminal.
        vars(session.sparkContext._accumulatorServer)["handle_error"] = _ignore
    except Exception as error:
        raise LoadError(f"Spark does not start: {cause_of(error)}") from None
    try:
        yield session
    finally:
        with suppress(Exception):  # what is gone need not be stopped
            session.stop()


def _ignore(*_: object) -> None:
    pass


def _make_context(conf: SparkConf) -> None:
    """In a thread of its own: in the main thread Spark would set a handler of interrupts, which raises anywhere."""
    with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starting:
        starting.submit(SparkContext.getOrCreate, conf).result()
