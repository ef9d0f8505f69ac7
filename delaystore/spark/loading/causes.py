"""What went wrong, in one line out of Spark's pages."""

import re
from typing import Final

_CAUSE: Final = re.compile(r"^\s*(?:Caused by: |: )?([\w.$]+(?:Exception|Error)): (.*)$", re.MULTILINE)
_TOLD: Final = re.compile(
    r"\[(?!FAILED_READ_FILE|TASK_|STAGE_)[A-Z][A-Z_]+[\w.]*\] (.+?)(?:\s+SQLSTATE: \w+)?$", re.MULTILINE
)
"""Spark's own errors, but those that only tell where another one came from."""
_HEADERS_DIFFER: Final = "CSV header does not conform"
_FILE: Final = re.compile(r"^CSV file: (\S+)", re.MULTILINE)


def cause_of(error: BaseException) -> str:
    """The innermost cause that Spark tells."""
    text = str(error)
    if _HEADERS_DIFFER in text:
        file = _FILE.search(text)
        return f"the CSV files have different columns ({file[1] if file else 'see their first rows'}); load them apart"
    if told := _TOLD.search(text):
        return told[1].strip()
    causes = [found[2].strip() for found in _CAUSE.finditer(text) if found[2].strip()]
    if causes:
        return causes[-1]
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
