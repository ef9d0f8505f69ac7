"""Settings are checked where they are made."""

from datetime import timedelta
from typing import Any

import pytest

from delaystore import DelayedDeliverySettings, TransactionMode
from delaystore.errors import ConfigurationError
from delaystore.settings import MOST


def test_seconds_are_durations() -> None:
    settings = DelayedDeliverySettings(poll_interval=2, retry_span=0.5)  # type: ignore[arg-type] - as users write it
    assert settings.poll_interval == timedelta(seconds=2)
    assert settings.retry_span == timedelta(seconds=0.5)


def test_a_mode_may_be_given_by_name() -> None:
    settings = DelayedDeliverySettings(transaction_mode="transaction_scope")  # type: ignore[arg-type] - as the CLI does
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


def test_every_setting_that_is_a_number_or_a_duration_has_an_upper_bound() -> None:
    numbers = {name for name, value in vars(DelayedDeliverySettings()).items() if type(value) in (int, timedelta)}
    assert numbers <= MOST.keys()
    assert DelayedDeliverySettings(**MOST).retry_span == MOST["retry_span"]  # type: ignore[arg-type]
