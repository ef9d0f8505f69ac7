"""Settings are checked where they are made."""

from datetime import timedelta
from typing import Any

import pytest

from delaystore import DelayedDeliverySettings, TransactionMode
from delaystore.errors import ConfigurationError


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
        ("error_queue", "a\nb", "error_queue 'a\\nb' contains a control character"),
        ("transaction_mode", "twice", "transaction_mode must be one of none, receive_only, "),
        ("on_critical_error", "log", "on_critical_error must be a function"),
    ],
)
def test_a_setting_that_cannot_work_is_named(setting: str, value: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        DelayedDeliverySettings(**{setting: value})
    assert complaint in str(caught.value)
