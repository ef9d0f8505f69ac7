"""The cause, taken from Spark's error: our error, or one line of Spark's pages.

An error in one of Spark's Python workers reaches the driver as text, within pages of JVM stack. Python's traceback ends
with a line such as `delaystore.errors.ConfigurationError: the option store is missing; ...`, which Spark leaves intact.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from delaystore import errors
from delaystore.errors import ConfigurationError, DelaystoreError, LoadError

_LINE: Final = re.compile(r"^[ \t]*(?:[\w.]*[:] )?delaystore\.errors\.(\w+): (.+)$", re.MULTILINE)
_FOLLOWED: Final = re.compile(r"\s*(?:During handling of|The above exception was)")
"""The text behind an error that led to another, in one traceback."""
_CAUSE: Final = re.compile(r"^\s*(?:Caused by: |: )?([\w.$]+(?:Exception|Error)): (.*)$", re.MULTILINE)
_TOLD: Final = re.compile(
    r"\[(?!FAILED_READ_FILE|TASK_|STAGE_)[A-Z][A-Z_]+[\w.]*\] (.+?)(?:\s+SQLSTATE: \w+)?$", re.MULTILINE
)
"""Spark's own errors, except errors that only tell where another one came from."""
_LACKING: Final = "ModuleNotFoundError: No module named 'delaystore'"
_HEADERS_DIFFER: Final = "CSV header does not conform"
_REMEDIES: Final = {
    "OutOfMemoryError": (
        "give Java more memory, as in --conf spark.driver.memory=4g (on a cluster spark.executor.memory), write "
        "smaller Parquet row groups, or run fewer tasks at once, as with --master local[1]"
    ),
    "No space left on device": (
        "free space there, or give Spark another folder for its files with --conf spark.local.dir=DIR"
    ),
}
_FILE: Final = re.compile(r"^CSV file: (\S+)", re.MULTILINE)


def plain_error(exception: BaseException) -> DelaystoreError | None:
    """Our error that `exception` is or reports, with its one line as text; None: it reports none.

    Only its class and text came across: attributes, such as a DuplicateMessageError's `message_ids`, are not there.
    """
    if isinstance(exception, DelaystoreError):
        return exception
    text = str(exception)
    for found in _LINE.finditer(text):
        kind = getattr(errors, found[1], None)
        if not (isinstance(kind, type) and issubclass(kind, DelaystoreError)):
            continue
        if _FOLLOWED.match(text, found.end()) is None:
            return _rebuilt(kind, found[2].strip())
    if _LACKING in text:
        return ConfigurationError(
            "the Python of Spark's workers lacks delaystore; install it there, or set PYSPARK_PYTHON to one that has it"
        )
    return None


def is_fatal(line: str) -> bool:
    """Whether a line of Spark's output says that memory or disk has run out, which no retry can fix."""
    return any(words in line for words in _REMEDIES)


def with_remedy(line: str) -> str:
    """The line, and what to do where that is known."""
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in line), None)
    return line if remedy is None else f"{line}; {remedy}"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise Spark's errors as our error that caused them, in one line; LoadError if none did."""
    try:
        yield
    except DelaystoreError:
        raise
    except Exception as error:
        raise plain_error(error) or LoadError(f"Spark failed: {cause_of(error)}") from None


def cause_of(error: BaseException) -> str:
    """The innermost cause that Spark reports."""
    text = str(error)
    if _HEADERS_DIFFER in text:
        file = _FILE.search(text)
        where = file[1] if file else "see their first rows"
        return f"the CSV files have different columns ({where}); load them separately"
    if fatal := next((line.strip() for line in text.splitlines() if is_fatal(line)), None):
        return with_remedy(fatal.removeprefix("Caused by: ").removeprefix(": "))
    if told := _TOLD.search(text):
        return told[1].strip()
    causes = [found[2].strip() for found in _CAUSE.finditer(text) if found[2].strip()]
    if causes:
        return causes[-1]
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _rebuilt(kind: type[DelaystoreError], text: str) -> DelaystoreError:
    """An error of that class whose text is `text`, independent of its own constructor."""
    error = kind.__new__(kind)
    error.args = (text,)
    return error
