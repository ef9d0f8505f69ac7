"""A standalone Spark cluster on loopback: a master, and workers on addresses of their own, for what local modes lack.

Spark speculates only where there is a second host to run on, by its name.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import psutil
import pyspark

from tests.faults.patience import PATIENCE
from tests.servers.ports import free_port

HOSTS: Final = ("127.0.0.2", "127.0.0.3")
ROOT: Final = Path(__file__).parents[2]
_JARS: Final = Path(pyspark.__file__).parent / "jars"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_ALIVE: Final = "Registering worker"


class Cluster:
    """A master on 127.0.0.1 and a worker of one core on each of HOSTS; a context manager, which ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """For `SparkSession.builder.master`."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("master", "127.0.0.1", [_MASTER, "--host", "127.0.0.1", "--port", str(self._port)])
            for host in HOSTS:
                work = self._folder / host
                work.mkdir()
                size = ["--cores", "1", "--memory", "512m", "--work-dir", str(work), "--webui-port", "0"]
                self._start(host, host, [_WORKER, "--host", host, *size, self.url])
            self._await_workers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers with their executors, and the master."""
        trees = [one for process in self._processes for one in _tree(process.pid)]
        for one in trees:
            try:
                one.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        for process in self._processes:
            process.wait(PATIENCE)
        psutil.wait_procs(trees, PATIENCE)
        self._processes = []

    def executors(self) -> Sequence[psutil.Process]:
        """The executors' processes."""
        found = [one for process in self._processes[1:] for one in _tree(process.pid)]
        return [one for one in found if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]

    def _start(self, name: str, host: str, arguments: Sequence[str]) -> None:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
        opened = ["java.base/java.lang", "java.base/java.nio", "java.base/java.util", "java.base/sun.nio.ch"]
        opens = [f"--add-opens={module}=ALL-UNNAMED" for module in [*opened, "java.base/java.lang.invoke"]]
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self._folder),
            "SPARK_HOME": str(_JARS.parent),
            "SPARK_SCALA_VERSION": "2.13",  # which Spark's own scripts set
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }
        webui = ["--webui-port", "0"] if name == "master" else []
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(java), "-Xmx256m", *opens, "-cp", f"{_JARS}/*", *arguments, *webui],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    env=environment,
                )
            )

    def _await_workers(self) -> None:
        deadline = time.monotonic() + PATIENCE
        log = self._folder / "master.log"
        while log.read_text(errors="replace").count(_ALIVE) < len(HOSTS):
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            assert all(process.poll() is None for process in self._processes), log.read_text(errors="replace")
            time.sleep(0.1)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
