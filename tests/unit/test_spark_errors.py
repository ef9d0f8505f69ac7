"""Errors of ours, dug out of Spark's; and what those see who have no Spark."""

import subprocess
import sys

import pytest

from delaystore.bulk.spark._errors import cause_of, plain_error
from delaystore.errors import ConfigurationError, DuplicateMessageError, StoreError

IN_SPARK = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "delaystore/bulk/options.py", line 1, in required
    raise ConfigurationError(
delaystore.errors.ConfigurationError: the option store is missing; add .option("store", ...)
 SQLSTATE: 38000
\tat org.apache.spark.sql.execution.Something(Something.scala:1)
"""
TWO = """Traceback (most recent call last):
delaystore.errors.StoreError: the first
\nDuring handling of the above exception, another exception occurred:\n
Traceback (most recent call last):
delaystore.errors.DuplicateMessageError: already waiting in the store: message_id 'a'
"""


def test_an_error_of_ours_is_found_in_the_text_of_another() -> None:
    found = plain_error(RuntimeError(IN_SPARK))
    assert type(found) is ConfigurationError
    assert str(found) == 'the option store is missing; add .option("store", ...)'


def test_what_led_to_another_error_is_passed_over() -> None:
    found = plain_error(RuntimeError(TWO))
    assert type(found) is DuplicateMessageError
    assert str(found) == "already waiting in the store: message_id 'a'"


def test_an_error_of_ours_is_itself() -> None:
    error = StoreError("no")
    assert plain_error(error) is error


@pytest.mark.parametrize(
    "text", ["", "java.lang.Exception", "delaystore.errors.NoSuchError: x", "delaystore.errors: x"]
)
def test_other_errors_are_not_ours(text: str) -> None:
    assert plain_error(RuntimeError(text)) is None


@pytest.mark.parametrize("library", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("name", ["register", "DelaystoreDataSource"])
def test_without_the_extra_one_line_says_what_to_install(library: str, name: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from delaystore.bulk.spark import {name}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        f"MissingDependencyError: Spark needs the library {library}, which is not installed"
        in result.stderr.splitlines()[-1]
    )
    assert "run pip install '.[spark]'" in result.stderr.splitlines()[-1]


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(ImportError):
        exec("from delaystore.bulk.spark import something")  # as a user would write it


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        (
            "Job aborted.\nCaused by: java.lang.OutOfMemoryError: Java heap space\n\tat a.b",
            "java.lang.Out",
            "driver.memory",
        ),
        ("[A_B] told\n: java.io.IOException: No space left on device", "java.io.IOException: No sp", "spark.local.dir"),
    ],
)
def test_what_has_run_out_is_told_with_what_to_do(text: str, line: str, remedy: str) -> None:
    told = cause_of(RuntimeError(text))
    assert told.startswith(line)
    assert remedy in told
