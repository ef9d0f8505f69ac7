"""The programs of docs/how-to/testing.md and examples/test_reminders.py pass, under the user's pytest."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "how-to" / "testing.md"
# by its module, once: the installed entry point may be an older one
PLUGIN = ("-p", "no:delaystore", "-p", "delaystore.testing.plugin", "-p", "no:cacheprovider")


def run_pytest(folder: Path, tests: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *PLUGIN, "--rootdir", str(folder), str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def programs() -> dict[str, str]:
    """The document's programs by the file names that their first lines say."""
    return dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL))


def test_every_program_of_the_document_passes(tmp_path: Path) -> None:
    written = programs()
    assert len(written) == DOCUMENT.read_text().count("```python")
    for name, program in written.items():
        (tmp_path / name).write_text(program)
    done = run_pytest(tmp_path, tmp_path)
    tests = sum(program.count("def test_") for program in written.values())
    assert re.search(rf"^{tests} passed in", done.stdout, re.MULTILINE), done.stdout


def test_the_report_of_the_document_is_what_is_printed(tmp_path: Path) -> None:
    (tmp_path / "reminders.py").write_text(programs()["reminders.py"])
    (tmp_path / "test_it.py").write_text(
        "from reminders import place_order\n\n\n"
        "def test_it(delayed_delivery):\n"
        "    place_order(delayed_delivery, 'order-17')\n"
        "    delayed_delivery.assert_sent('reminders', delay=86400)\n"
    )
    (shown,) = re.findall(r"```text\n(E .*?)```", DOCUMENT.read_text(), re.DOTALL)
    printed = run_pytest(tmp_path, tmp_path).stdout
    assert shown in printed, printed


def test_the_example_passes(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, ROOT / "examples" / "test_reminders.py")
    assert re.search(r"^3 passed in", done.stdout, re.MULTILINE), done.stdout
