"""Which of the workers runs which tests."""

from typing import Final

from typing_extensions import override
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

CLUSTERS: Final = "tests/clusters/"
CONFORMANCE: Final = "tests/conformance/"
SPARK: Final = "tests/spark/"
SPARK_PROCESSES: Final = ("test_load_faults.py", "test_load_cli.py", "test_documents_spark.py")
LONGEST_FIRST: Final = (
    SPARK,
    CLUSTERS,
    "tests/celery/",
    "tests/faults/",
    "tests/ingress/",
    "tests/service/",
    "tests/chaos/",
    "tests/web/",
    "tests/integration/",
    CONFORMANCE,
    "tests/unit/",
)
"""The order in which workers get files: a long one at the end would keep one worker busy and the others waiting."""


def place_of(test: str) -> int:
    """Of a test among the others, by its folder."""
    return next((n for n, folder in enumerate(LONGEST_FIRST) if test.startswith(folder)), len(LONGEST_FIRST))


class Scheduling(LoadFileScheduling):
    """Gives workers whole files, classes of the conformance kit, Spark's in two parts, and what has clusters in one.

    After a worker has crashed, xdist 3.8 gives out again what that had finished, and the test that it crashed in. A
    worker that is given nothing to do, or one test, says no more, and the run never ends:
    https://github.com/pytest-dev/pytest-xdist/issues/1378 and /1327.
    """

    @override
    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file.startswith(CONFORMANCE):
            return f"{file}::{test.partition('::')[0]}"  # these files have hundreds of tests
        if file.startswith(CLUSTERS):
            return "Clusters"
        if not file.startswith(SPARK):
            return file
        return "Spark, in processes" if file.endswith(SPARK_PROCESSES) else "Spark"

    @override
    def remove_node(self, node: WorkerController) -> str | None:
        workload = self.assigned_work.pop(node)
        crashed = next((test for unit in workload.values() for test, done in unit.items() if not done), None)
        if crashed is None:
            return None
        workload[self._split_scope(crashed)][crashed] = True
        self.workqueue.update((scope, unit) for scope, unit in workload.items() if not all(unit.values()))
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    @override
    def schedule(self) -> None:
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)
