"""Waiting messages in Django's admin."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError
from django.db import router
from django.db.migrations.operations.base import Operation
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_POST
from typing_extensions import override

from delaystore.errors import DelaystoreError, InvalidMessageError
from delaystore.integrations.django import delayed
from delaystore.integrations.django._delivery import django_settings
from delaystore.integrations.django.models import WaitingMessage
from delaystore.message import DelayedMessage, Position
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.sql import SqlDelayedMessageStore


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


PAGE: Final = 100


"""Messages on one page."""


_SHOWN: Final = 4096


"""Bytes of a body that are shown."""


_LIST: Final = "admin:delaystore_waitingmessage_changelist"


_MESSAGE: Final = "admin:delaystore_waitingmessage_change"


@admin.register(WaitingMessage)
class WaitingMessageAdmin(admin.ModelAdmin):  # type: ignore[misc] # Django ships no types
    """Pages of the store's own; nothing can be added or edited."""

    @override
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @override
    def get_urls(self) -> list[URLPattern]:
        site, prefix = self.admin_site.admin_view, "delaystore_waitingmessage"
        show, cancel, reschedule = map(_telling, (self.message_view, self.cancel_view, self.reschedule_view))
        return [
            path("", site(self.changelist_view), name=f"{prefix}_changelist"),
            path("<path:object_id>/cancel/", site(require_POST(cancel)), name=f"{prefix}_cancel"),
            path("<path:object_id>/reschedule/", site(require_POST(reschedule)), name=f"{prefix}_reschedule"),
            path("<path:object_id>/change/", site(show), name=f"{prefix}_change"),
        ]

    @override
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """A page of what waits, the next to be tried first."""
        self._require(self.has_view_permission(request))
        form = FilterForm(request.GET)
        page, total, problem = None, None, None
        if form.is_valid():
            try:
                with delayed.reading() as store:
                    page, total = store.list(limit=PAGE, **form.filters()), store.estimate_count()
            except DelaystoreError as error:
                problem = str(error)
        context = {
            **self._context(request, "Waiting messages"),
            "form": form,
            "messages_waiting": [] if page is None else [(quote(each.message_id), each) for each in page.messages],
            "next": None if page is None or page.next_key is None else form.query(after=str(page.next_key)),
            "total": total,
            "problem": problem,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "delaystore/admin/messages.html", context)

    def message_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """One message, with what may be done with it."""
        self._require(self.has_view_permission(request))
        message = _waiting(unquote(object_id))
        return self._show(request, message, RescheduleForm(initial={"at": message.due_time}))

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel a message; needs the permission to delete."""
        self._require(self.has_delete_permission(request))
        message_id = unquote(object_id)
        with delayed.changing(_name(request)) as changes:
            outcome = changes.cancel(message_id)
        return self._done(request, message_id, outcome, "cancelled")

    def reschedule_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give a message a new due time; needs the permission to change."""
        self._require(self.has_change_permission(request))
        message_id = unquote(object_id)
        form = RescheduleForm(request.POST)
        if not form.is_valid():
            return self._show(request, _waiting(message_id), form)
        try:
            with delayed.changing(_name(request)) as changes:
                outcome = changes.reschedule(message_id, at=form.cleaned_data["at"])
        except InvalidMessageError as error:
            form.add_error("at", str(error))
            return self._show(request, _waiting(message_id), form)
        return self._done(request, message_id, outcome, "rescheduled")

    def _show(self, request: HttpRequest, message: DelayedMessage, form: RescheduleForm) -> HttpResponse:
        context = {
            **self._context(request, message.message_id),
            "waiting": message,
            "id": quote(message.message_id),
            "body": message.body[:_SHOWN].decode(errors="replace"),
            "more": max(0, len(message.body) - _SHOWN),
            "form": form,
            "may_cancel": self.has_delete_permission(request),
            "may_reschedule": self.has_change_permission(request),
        }
        return TemplateResponse(request, "delaystore/admin/message.html", context)

    def _done(self, request: HttpRequest, message_id: str, outcome: ManagementOutcome, done: str) -> HttpResponse:
        if outcome is ManagementOutcome.DONE:
            messages.success(request, f"The message {message_id} is {done}.")
        elif outcome is ManagementOutcome.BEING_DISPATCHED:
            messages.error(request, f"The message {message_id} is being dispatched: nothing was changed.")
        else:
            messages.error(request, f"The message {message_id} waits no longer.")
        if outcome is ManagementOutcome.DONE and done == "rescheduled":
            return redirect(reverse(_MESSAGE, args=[quote(message_id)]))
        return redirect(reverse(_LIST))

    def _context(self, request: HttpRequest, title: str) -> dict[str, Any]:
        return {**self.admin_site.each_context(request), "title": title, "opts": self.opts, "list_url": reverse(_LIST)}

    @staticmethod
    def _require(allowed: bool) -> None:
        if not allowed:
            raise PermissionDenied


def _name(request: HttpRequest) -> str:
    """In whose name a change is noted."""
    return str(request.user.get_username())


def _telling(view: Callable[[HttpRequest, str], HttpResponse]) -> Callable[[HttpRequest, str], HttpResponse]:
    """`view`, with what the store raises told above the list."""

    @wraps(view)
    def told(request: HttpRequest, object_id: str) -> HttpResponse:
        try:
            return view(request, object_id)
        except InvalidMessageError as error:
            raise Http404(f"no message can have this id: {error}") from None
        except DelaystoreError as error:
            messages.error(request, str(error))
            return redirect(reverse(_LIST))

    return told


def _waiting(message_id: str) -> DelayedMessage:
    message = delayed.get(message_id)
    if message is None:
        raise Http404(f"no message {message_id!r} waits")
    return message


class UpgradeTables(Operation):  # type: ignore[misc] # Django ships no types
    """Create or upgrade the store's tables, in the database that DELAYSTORE names, and in no other.

    `version`: of the store's schema, which the tables have at least afterwards. `drops`: going back drops the tables,
    unless messages wait in them; otherwise going back changes nothing.
    """

    reduces_to_sql = False

    def __init__(self, version: str, drops: bool = False) -> None:
        self.version = version
        self.drops = drops

    @override
    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of Django's changes."""

    @override
    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if self._is_here(app_label, schema_editor):
            with _store() as store:
                store.setup_infrastructure()

    @override
    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not self.drops or not self._is_here(app_label, schema_editor):
            return
        with _store() as store:
            waiting = store.remove_if_empty()
        if waiting:
            they = "1 message waits" if waiting == 1 else f"{waiting:,} messages wait"
            raise CommandError(f"{they}, and would be lost with the tables; cancel what waits, or have it dispatched")

    @override
    def describe(self) -> str:
        return f"The tables of delayed messages, version {self.version}"

    @staticmethod
    def _is_here(app_label: str, schema_editor: Any) -> bool:
        alias = schema_editor.connection.alias
        return alias == django_settings().database and bool(router.allow_migrate(alias, app_label))


@contextmanager
def _store() -> Iterator[SqlDelayedMessageStore]:
    """The store; what it raises becomes a CommandError, which manage.py shows in one line."""
    try:
        yield delayed.store
    except DelaystoreError as error:
        raise CommandError(str(error)) from None
