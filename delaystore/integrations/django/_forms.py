"""What the admin's pages ask for."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.utils import timezone
from typing_extensions import override

from delaystore.message import Position


class TimeField(forms.DateTimeField):  # type: ignore[misc] # Django ships no types
    """A time in Django's current time zone, also where USE_TZ is False."""

    @override
    def prepare_value(self, value: Any) -> Any:
        given = isinstance(value, datetime) and timezone.is_aware(value)
        return super().prepare_value(timezone.make_naive(value) if given else value)

    @override
    def to_python(self, value: Any) -> datetime | None:
        time: datetime | None = super().to_python(value)
        return time if time is None or timezone.is_aware(time) else timezone.make_aware(time)


class FilterForm(forms.Form):  # type: ignore[misc] # Django ships no types
    """Which messages to list."""

    destination = forms.CharField(required=False)
    since = TimeField(required=False, label="due from")
    until = TimeField(required=False, label="due before")
    after = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_after(self) -> Position | None:
        """The position behind which the page begins."""
        text = self.cleaned_data["after"]
        try:
            return Position.parse(text) if text else None
        except ValueError:
            raise forms.ValidationError("this is no page; begin at the first one") from None

    def filters(self) -> dict[str, Any]:
        """Arguments of `list`."""
        return {name: value or None for name, value in self.cleaned_data.items()}

    def query(self, after: str) -> str:
        """The query of the next page, with these filters."""
        given = {name: value for name, value in self.data.items() if value and name in self.fields}
        return urlencode({**given, "after": after})


class RescheduleForm(forms.Form):  # type: ignore[misc] # Django ships no types
    """A new due time, in Django's current time zone."""

    at = TimeField(label="due at")
