"""Documents as programs: a page's commands and programs run from top to bottom, and print what it says they print.

    ```bash        runs in one shell for the whole page, at a terminal of 100 columns
    ```python      runs as a program; one that begins with `# NAME.py` is only written into that file
    ```text        right behind one of these: what it prints; `...` stands for anything within a line, or for lines
    ```LANGUAGE    any other that begins with `# NAME.EXTENSION` is written into that file

Nothing is left out, but for what installs (REPLACED). A dispatcher that would run for ever ends when nothing is due.
"""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tests.preloaded.starting import commands_folder

ROOT: Final = Path(__file__).parents[1]
RUN: Final = ("bash", "python")

OWN_TESTS: Final = {
    "README.md": "tests/integration/test_documents.py",
    "docs/how-to/leaving-apscheduler.md": "tests/integration/test_apscheduler.py",
    "docs/reference/control.md": "tests/integration/test_control_document.py",
    "docs/how-to/ingress.md": "tests/integration/test_ingest_document.py",
    "docs/reference/ingress-messages.md": "tests/ingress/test_rejected_document.py",
    "docs/how-to/leaving-nservicebus-timeouts.md": "tests/integration/test_leaving_nservicebus.py",
    "docs/how-to/leaving-the-plugin.md": "tests/integration/test_leaving_the_plugin.py",
    "docs/how-to/migrating.md": "tests/integration/test_documents.py",
    "docs/how-to/cascades.md": "tests/integration/test_documents.py",
    "docs/how-to/backup.md": "tests/integration/test_database_documents.py",
    "docs/explanation/sizing.md": "tests/integration/test_database_documents.py",
    "docs/reference/postgresql.md": "tests/integration/test_database_documents.py",
    "docs/tutorials/any-language.md": "tests/service/test_service_document.py",
    "docs/how-to/load-files.md": "tests/spark/test_documents_spark.py",
    "docs/how-to/spark.md": "tests/spark/test_documents_spark.py",
    "docs/reference/metrics.md": "tests/unit/test_telemetry_document.py",
    "docs/how-to/testing.md": "tests/integration/test_testing_document.py",
    "docs/how-to/transactions.md": "tests/integration/test_enlist_document.py",
    "docs/how-to/web-page.md": "tests/web/test_document.py",
    "docs/reference/http-api.md": "tests/web/test_document.py",
    "docs/troubleshooting/symptoms.md": "tests/ingress/test_symptoms_document.py",
    "docs/writing-a-store.md": "tests/integration/test_documents.py",
}
"""Pages that need more than a shell, such as workers, Spark or tables of others, and which test runs theirs."""

INSTALLING: Final = re.compile(r"^pip install .*$", re.MULTILINE)
REPLACED: Final = {
    "source .venv/bin/activate": "",  # the tests' own environment has it
    "createdb app": "",  # the tests' own database is there
    "make demo": "delaystore demo",  # which is what it runs, once it has installed it
}
ADDRESSES: Final = {
    "postgresql+psycopg://localhost/app": "postgresql_url",
    "postgresql+asyncpg://localhost/app": "asyncpg_url",
    "postgresql://localhost/app": "postgresql_url",
    "mysql://localhost/app": "mariadb_url",
    "amqp://localhost": "rabbitmq_url",
}
"""Addresses that documents use, and the fixtures that have the tests' own."""
SERVING: Final = re.compile(r"^(delaystore dispatch(?!.*(?:--once|&)).*)$", re.MULTILINE)
MAKING: Final = re.compile(r"^make ([^#\n]+)", re.MULTILINE)
"""What takes long has tests of its own: here make only tells what it would do."""
LONGEST: Final = 180.0
"""Seconds that a page may take."""
MANAGEMENT: Final = "http://localhost:15672"

_BLOCK: Final = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_NAMED: Final = re.compile(r"\A(?:#|//|--) ([\w/-]+\.\w+)\n")
_MARK: Final = "@@@ block"
_ANYTHING: Final = {
    "id": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?",
    "...": r".*",
}
"""What a fresh id, a time, and `...` stand for."""
_VARIES: Final = re.compile(rf"{_ANYTHING['id']}|{_ANYTHING['time']}|\.\.\.")
_ERASED: Final = re.compile(r"[^\n]*\n(?:\x1b\[\?25h)?\r?\x1b\[1A\x1b\[2K")
"""A progress bar's line, which the terminal does not show any more."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Block:
    """A block of code of a document; `line`: where it begins."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The name of the file that it is written into; None: it is none."""
        named = _NAMED.match(self.text)
        return named[1] if named else None


def blocks_of(text: str) -> list[Block]:
    """The blocks of code of a document, those within lists and tabs as well."""
    return [
        Block(found[2], re.sub(f"^{found[1]}", "", found[3], flags=re.MULTILINE), text[: found.start()].count("\n") + 1)
        for found in _BLOCK.finditer(text)
    ]


def documents() -> list[str]:
    """README and all pages below docs/."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]


def pages_with_code() -> list[str]:
    """The documents with something that can be run."""
    return [
        path for path in documents() if any(block.language in RUN for block in blocks_of((ROOT / path).read_text()))
    ]


def script(blocks: list[Block]) -> str:
    """A page as one shell script."""
    return "\n".join(["set -euo pipefail", *(_as_commands(number, block) for number, block in enumerate(blocks))])


def _as_commands(number: int, block: Block) -> str:
    if block.language == "text":
        return ""
    begin = f"echo; echo '{_MARK} {number}'"
    if block.file is not None:
        return f"{begin}\ncat > {block.file} <<'@@@'\n{block.text}@@@"
    if block.language == "python":
        return f"{begin}\npython -W error::DeprecationWarning - <<'@@@'\n{block.text}@@@"
    commands = INSTALLING.sub(":", block.text)
    commands = MAKING.sub(rf"make --dry-run --directory {ROOT} \1 > /dev/null ", SERVING.sub(r"\1 --once", commands))
    return f"{begin}\n{commands}" if block.language == "bash" else ""


def printed(commands: str, folder: Path) -> tuple[int, dict[int, str]]:
    """Run the script in `folder`, at a terminal: its exit code, and what each block has printed."""
    main, terminal = pty.openpty()
    path = os.pathsep.join([commands_folder(), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
        "TERM": "xterm",
        "NO_COLOR": "1",
    }
    process = subprocess.Popen(
        ["bash", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    watch = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
    watch.start()
    text = _ESCAPES.sub("", _ERASED.sub("", _read_all(main)))
    watch.cancel()
    _, *parts = re.split(rf"^{_MARK} (\d+)\n", text, flags=re.MULTILINE)
    return process.wait(), {int(number): part for number, part in zip(parts[::2], parts[1::2], strict=True)}


def _read_all(main: int) -> str:
    with os.fdopen(main, "rb") as output:
        kept = b""
        while True:
            try:
                part = output.read1(65536)
            except OSError:  # Linux's end of a terminal
                return kept.decode()
            if not part:
                return kept.decode()
            kept += part


def is_as_shown(shown: str, text: str) -> bool:
    """Whether `text` is what a document shows: `...` is anything in a line; a line of `...` is any lines.

    A time stands for any time, and a fresh id for any id. White space around lines does not count.
    """
    lines = [r"(?:.*\n)*?" if line.strip() == "..." else _pattern(line) for line in _lines(shown)]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _lines(text))) is not None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _pattern(line: str) -> str:
    parts = _VARIES.split(line)
    found = [_ANYTHING[kind or "..."] for kind in (_kind(part) for part in _VARIES.findall(line))]
    return "".join(re.escape(part) + what for part, what in zip_longest(parts, found, fillvalue="")) + "\n"


def _kind(found: str) -> str:
    return next((kind for kind in _ANYTHING if re.fullmatch(_ANYTHING[kind], found) and kind != "..."), "...")
