"""Settings are checked where they are made."""

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import delaystore
from delaystore import DelayedDeliverySettings, TransactionMode
from delaystore.errors import ConfigurationError
from delaystore.settings import MOST, AddedHeader

ROOT = Path(delaystore.__file__).parents[1]


def test_seconds_are_durations() -> None:
    settings = DelayedDeliverySettings(poll_interval=2, retry_span=0.5)
    assert settings.poll_interval == timedelta(seconds=2)
    assert settings.retry_span == timedelta(seconds=0.5)


def test_a_mode_may_be_given_by_name() -> None:
    settings = DelayedDeliverySettings(transaction_mode="transaction_scope")
    assert settings.transaction_mode is TransactionMode.TRANSACTION_SCOPE


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("number_of_retries", -1, "number_of_retries must be a whole number from 0, not -1"),
        ("number_of_retries", 1.5, "number_of_retries must be a whole number from 0, not 1.5"),
        ("batch_size", 0, "batch_size must be a whole number from 1, not 0"),
        ("batch_size", True, "batch_size must be a whole number from 1, not True"),
        ("max_body_bytes", "1MB", "max_body_bytes must be a whole number from 1"),
        ("dispatch_timeout", 0, "dispatch_timeout must be a timedelta or seconds, above 0, not 0"),
        ("retry_span", timedelta(seconds=-1), "retry_span must be a timedelta or seconds, above 0"),
        ("handover_horizon", -1, "handover_horizon must be a timedelta or seconds, from 0, not -1 s"),
        ("retry_span", "15m", "retry_span must be a timedelta or seconds, above 0, not '15m'"),
        ("poll_interval", float("inf"), "poll_interval is out of range"),
        ("poll_interval", float("nan"), "poll_interval is out of range"),
        ("maximum_sleep", 61, "maximum_sleep must be at most 0:01:00"),
        ("maximum_recovery_failures_per_second", 0, "must be a number above 0"),
        (
            "added_headers",
            "late",
            "added_headers cannot be 'late'; choose from due-time, attempt, sent-at, load, or all",
        ),
        ("added_headers", ["attempt", "due_time"], "added_headers cannot be 'due_time'; choose from due-time, attempt"),
        ("added_headers", 5, "added_headers must be a list of names, not 5"),
        ("added_headers", [None], "added_headers cannot be 'None'; choose from"),
        ("audit", "some", "audit must be one of operators, all, not 'some'"),
        ("retention", 3600, "retention must be at least 1 day, 0:00:00, not 1:00:00"),
        ("retention", timedelta.max, "retention must be at most 36500 days"),
        ("history", 30, "history must be at least 1m, or 0, not 30s"),
        ("history", "a month", "history 'a month' is no duration"),
        ("history", timedelta.max, "history must be at most 3650 days"),
        ("error_queue", "", "error_queue must be a queue name"),
        ("error_queue", "a\nb", "error_queue cannot be 'a\\nb': destination 'a\\nb' contains the control character"),
        ("error_queue", "a\0b", "error_queue cannot be 'a\\x00b': destination 'a\\x00b' contains a NUL character"),
        ("error_queue", "q" * 256, "has 256 bytes; at most 255 are allowed"),
        ("error_queue", "\udcff", "cannot be written as UTF-8"),
        ("error_queue", "/nowhere/x", "is no address; write /queues/NAME"),
        ("error_queue", "/queues/a%0Ab", "names something with the control character"),
        ("dispatch_timeout", timedelta(days=300 * 365), "dispatch_timeout must be at most 0:02:00, not 109500 days"),
        ("retry_span", timedelta.max, "retry_span must be at most 365 days"),
        ("poll_interval", 3601, "poll_interval must be at most 1:00:00, not 1:00:01"),
        ("handover_horizon", timedelta.max, "handover_horizon must be at most 3650 days"),
        ("time_to_trigger_store_circuit_breaker", timedelta.max, "must be at most 1 day, 0:00:00"),
        ("time_to_trigger_fetch_circuit_breaker", timedelta.max, "must be at most 1 day, 0:00:00"),
        ("time_to_trigger_dispatch_circuit_breaker", timedelta.max, "must be at most 1 day, 0:00:00"),
        ("number_of_retries", 10**400, "number_of_retries must be at most 1,000,000"),
        ("batch_size", 100_001, "batch_size must be at most 100,000, not 100001"),
        ("batch_bytes", 2**41, "batch_bytes must be at most 1,099,511,627,776"),
        ("max_body_bytes", 2**31, "max_body_bytes must be at most 1,073,741,824"),
        ("maximum_recovery_failures_per_second", float("inf"), "must be at most 1,000,000, not inf"),
        ("transaction_mode", "twice", "transaction_mode must be one of none, receive_only, "),
        ("on_critical_error", "log", "on_critical_error must be a function"),
    ],
)
def test_a_setting_that_cannot_work_is_named(setting: str, value: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DelayedDeliverySettings(**{setting: value})
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        ["load", "due-time"],
        "load,due-time",
        " due-time , load ",
        {AddedHeader.LOAD, AddedHeader.DUE_TIME},
        iter(("due-time", "load", "load")),
    ],
)
def test_headers_are_chosen_in_any_order_and_form(given: Any) -> None:
    chosen = (AddedHeader.DUE_TIME, AddedHeader.LOAD)
    assert DelayedDeliverySettings(added_headers=given).added_headers == chosen


def test_all_headers_may_be_chosen_and_none_is_by_default() -> None:
    assert DelayedDeliverySettings().added_headers == DelayedDeliverySettings(added_headers="").added_headers == ()
    assert DelayedDeliverySettings(added_headers=["all"]).added_headers == tuple(AddedHeader)
    assert DelayedDeliverySettings(added_headers=AddedHeader.LOAD).added_headers == (AddedHeader.LOAD,)


def test_every_setting_that_is_a_number_or_a_duration_has_an_upper_bound() -> None:
    numbers = {name for name, value in vars(DelayedDeliverySettings()).items() if type(value) in (int, timedelta)}
    assert numbers <= MOST.keys()
    assert DelayedDeliverySettings(**MOST).retry_span == MOST["retry_span"]  # type: ignore[arg-type]


def test_settings_are_frozen_and_compared_copied_and_pickled_as_values() -> None:
    settings = DelayedDeliverySettings(retry_span=60, transaction_mode="none")
    with pytest.raises(FrozenInstanceError):
        settings.retry_span = 30  # type: ignore[misc]
    assert settings == pickle.loads(pickle.dumps(settings)) == replace(settings)
    assert settings != replace(settings, retry_span=61)
    assert DelayedDeliverySettings.retry_span == timedelta(minutes=15)


TYPED = """
from datetime import timedelta
from delaystore.settings import DelayedDeliverySettings, TransactionMode

settings = DelayedDeliverySettings(retry_span=60, poll_interval=0.5, store_timeout=timedelta(seconds=2))
span: timedelta = settings.retry_span
mode: TransactionMode = DelayedDeliverySettings(transaction_mode="none").transaction_mode
DelayedDeliverySettings(retry_span="60")
settings.retry_span + 1
"""


def test_type_checkers_know_what_is_accepted_and_what_is_kept(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    complaints = [line.partition(" error: ")[2] for line in result.stdout.splitlines() if " error: " in line]
    assert complaints == [
        'Argument "retry_span" to "DelayedDeliverySettings" has incompatible type "str"; expected "timedelta | float"'
        "  [arg-type]",
        'Unsupported operand types for + ("timedelta" and "int")  [operator]',
    ]
