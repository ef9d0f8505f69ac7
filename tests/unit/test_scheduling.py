"""What of the tests runs after a worker has crashed: each of the others, once."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.long  # the tests' own tool
ROOT: Final = Path(__file__).parents[2]
QUICK: Final = "def test_one(): pass\ndef test_two(): pass\n"
CRASHING: Final = "import os\ndef test_one(): pass\ndef test_two(): os._exit(1)\n"
CONFTEST: Final = """
from tests.scheduling import Scheduling

def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("left", ["", "def test_three(): pass\n", "def test_three(): pass\ndef test_four(): pass\n"])
def test_a_worker_that_crashed_is_replaced_and_the_rest_runs(tmp_path: Path, left: str, workers: int) -> None:
    files = {"conftest.py": CONFTEST, "test_a.py": QUICK, "test_b.py": CRASHING + left, "pytest.ini": "[pytest]\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = f"-m pytest --numprocesses {workers} --dist loadfile --no-loadscope-reorder -p no:cacheprovider"
    run = subprocess.run(
        [sys.executable, *command.split()],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"1 failed, {3 + left.count('def')} passed" in run.stdout
