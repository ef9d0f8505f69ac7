"""What the admin's pages ask for."""

from typing import Any
from urllib.parse import urlencode

from django import forms

from delaystore.message import Position


class FilterForm(forms.Form):  # type: ignore[misc] # Django ships no types
    """Which messages to list."""

    destination = forms.CharField(required=False)
    since = forms.DateTimeField(required=False, label="due from")
    until = forms.DateTimeField(required=False, label="due before")
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

    at = forms.DateTimeField(label="due at")
