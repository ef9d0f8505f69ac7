"""Waiting messages in Django's admin: Django's own change list, read-only pages, actions and log, over the store.

Pages and actions come from Django; `_change_list` says how they read the store. Django may neither save nor delete a
message, so that it offers no way around the claims of dispatchers: every change is an action, which the store's one
service makes. A page's buttons run the same actions, with the same confirmation.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.contrib.admin.widgets import AdminSplitDateTime
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from typing_extensions import override

from delaystore.errors import ConfigurationError, DelaystoreError, InvalidMessageError
from delaystore.filters import Shift
from delaystore.integrations.django import delayed
from delaystore.integrations.django._change_list import (
    DestinationFilter,
    DueTimeFilter,
    HistoryForm,
    MessageChangeList,
    Selection,
    StateFilter,
)
from delaystore.integrations.django.models import WaitingMessage
from delaystore.message import unmarked, waiting_until
from delaystore.operations import Operations
from delaystore.operations.changes import CancelRequest, MessageRequest, RescheduleRequest
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.records import ChangeAction, Operation, OperationKind
from delaystore.text import counted, duration_text, parse_shift

SHOWN: Final = 100
"""Messages that a confirmation page, or a page of the history, lists."""
_BODY_SHOWN: Final = 4096
"""Bytes of a body that are shown."""
_REPORTED: Final = 10
"""Ids that a message above the page names."""
_ENTRIES: Final = "delaystore_waitingmessage_entries"
"""The name of the history's address; Django's `..._history` is the log of one object."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAction:
    """An action of the admin.

    Attributes:
        name: The name of the method.
        title: The imperative, for buttons and headings.
        done: The participle, for reports.
        flag: The kind of the entry in Django's log.
        kind: The operation on all messages that match a filter.

    """

    name: str
    title: str
    done: str
    flag: int
    kind: OperationKind


CANCEL: Final = MessageAction(
    name="cancel_messages", title="Cancel", done="Cancelled", flag=DELETION, kind=OperationKind.CANCEL
)
SEND_NOW: Final = MessageAction(
    name="send_now", title="Send now", done="Made due now", flag=CHANGE, kind=OperationKind.RESCHEDULE
)
RESCHEDULE: Final = MessageAction(
    name="reschedule", title="Reschedule", done="Rescheduled", flag=CHANGE, kind=OperationKind.RESCHEDULE
)


class AwareTimeField(forms.SplitDateTimeField):  # type: ignore[misc] # Django ships no types
    """A time in Django's current time zone, also if USE_TZ is False."""

    widget = AdminSplitDateTime

    @override
    def compress(self, data_list: Any) -> datetime | None:
        time: datetime | None = super().compress(data_list)
        return time if time is None or timezone.is_aware(time) else timezone.make_aware(time)


class RescheduleForm(forms.Form):  # type: ignore[misc] # Django ships no types
    """A new due time, or by how much due times move."""

    at = AwareTimeField(label="New due time", required=False)
    by = forms.CharField(label="Or later by, such as 7d; -2h: earlier", required=False)

    def new_due_time(self) -> datetime | Shift:
        """The valid form's time or span. Raises InvalidMessageError, ConfigurationError."""
        at, by = self.cleaned_data["at"], self.cleaned_data["by"]
        if bool(at) is bool(by):
            raise InvalidMessageError("give a new due time, or a span such as 7d, one of them")
        return Shift.of(parse_shift(by, "the span")) if by else waiting_until(at, "the new due time")


class _TimeIsUpError(Exception):
    """The request has taken long enough; the operation continues with the next one."""


def _reporting(
    view: Callable[Concatenate["WaitingMessageAdmin", HttpRequest, P], HttpResponse],
) -> Callable[Concatenate["WaitingMessageAdmin", HttpRequest, P], HttpResponse]:
    """`view`; an error of the store is shown on the admin's first page."""

    @wraps(view)
    def reported(
        self: "WaitingMessageAdmin", request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
    ) -> HttpResponse:
        try:
            return view(self, request, *args, **kwargs)
        except DelaystoreError as error:
            messages.error(request, str(error))
            return redirect(f"{self.admin_site.name}:index")

    return reported


@admin.register(WaitingMessage)
class WaitingMessageAdmin(admin.ModelAdmin):  # type: ignore[misc] # Django ships no types
    """Lists, shows, cancels, reschedules and sends waiting messages.

    Attributes:
        run_seconds: How long one request changes messages that match a filter. If more are left, a page asks whether to
            continue.

    """

    list_display = ("message_id", "destination", "due_time", "next_attempt", "failed_attempts", "key", "last_failure")
    list_filter = (DestinationFilter, DueTimeFilter, StateFilter)
    search_fields = ("message_id",)  # makes Django show the box; get_search_results searches
    search_help_text = "A message's key, or the beginning of message ids."
    sortable_by = ()
    show_full_result_count = False
    if hasattr(admin, "ShowFacets"):  # since Django 5.0; each would be a count of its own
        show_facets = admin.ShowFacets.NEVER
    actions = ("cancel_messages", "send_now", "reschedule")
    change_list_template = "delaystore/admin/change_list.html"
    change_form_template = "delaystore/admin/change_form.html"
    fieldsets = (
        (
            None,
            {
                "fields": (
                    *("message_id", "destination", "key", "due_time", "latest_delivery", "next_attempt"),
                    *("failed_attempts", "failures"),
                )
            },
        ),
        ("Content", {"fields": ("properties", "headers", "body")}),
    )
    readonly_fields = tuple(name for _, options in fieldsets for name in options["fields"])
    run_seconds = 10.0

    # What may be done: only by actions, each by a permission of the model.

    @override
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: WaitingMessage | None = None) -> bool:
        return False

    @override
    def has_delete_permission(self, request: HttpRequest, obj: WaitingMessage | None = None) -> bool:
        return False

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel messages."""
        return bool(request.user.has_perm("delaystore.delete_waitingmessage"))

    def has_reschedule_permission(self, request: HttpRequest) -> bool:
        """Whether the user may reschedule messages and send them now."""
        return bool(request.user.has_perm("delaystore.change_waitingmessage"))

    # The history, the list, and the page of a message

    @override
    def get_urls(self) -> list[Any]:
        return [path("history/", self.admin_site.admin_view(self.entries_view), name=_ENTRIES), *super().get_urls()]

    @_reporting
    def entries_view(self, request: HttpRequest) -> HttpResponse:
        """The history: messages that have left the store, the newest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form, state, page = HistoryForm(request.GET), delayed.operations.history_status(), None
        if form.is_valid():
            try:
                page = form.page(request.GET.get(PAGE_VAR, ""), SHOWN)
            except ValueError as error:
                form.add_error(None, str(error))
        given = {**request.GET.dict(), PAGE_VAR: page.next_key if page else None}
        context = {
            **self.admin_site.each_context(request),
            "title": "History",
            "opts": self.opts,
            "form": form,
            "since": None if state.since is None else _local(state.since),
            "rows": [
                (each, _local(each.ended), "-" if each.late is None else duration_text(each.late))
                for each in (page.entries if page else ())
            ],
            "next_page": urlencode(given) if page and page.next_key else None,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "delaystore/admin/history.html", context)

    @override
    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Django's warning, on the page of the message's history."""
        super()._get_obj_does_not_exist_redirect(request, opts, object_id)
        entries = reverse(f"admin:{_ENTRIES}", current_app=self.admin_site.name)
        return redirect(f"{entries}?{urlencode({'q': unquote(object_id)})}")

    @override
    def get_queryset(self, request: HttpRequest) -> Selection:
        return Selection()

    @override
    def get_search_results(self, request: HttpRequest, queryset: Selection, search_term: str) -> tuple[Selection, bool]:
        term = search_term.strip()
        return (queryset.of_search(term) if term else queryset), False

    @override
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return MessageChangeList

    @override
    @_reporting
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, extra_context)

    @override
    @_reporting
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        allowed = self.get_actions(request)
        buttons = [action for action in (CANCEL, SEND_NOW, RESCHEDULE) if action.name in allowed]
        context = {"buttons": buttons, "checkbox": ACTION_CHECKBOX_NAME, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)

    @override
    @_reporting
    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        return super().history_view(request, object_id, extra_context)

    @override
    def get_fieldsets(self, request: HttpRequest, obj: WaitingMessage | None = None) -> Sequence[Any]:
        """Without the body if the user may not see it."""
        if request.user.has_perm("delaystore.view_body"):
            return self.fieldsets
        return [
            (title, {"fields": [each for each in options["fields"] if each != "body"]})
            for title, options in self.fieldsets
        ]

    def destination(self, obj: WaitingMessage) -> str:
        """The queue or exchange that the message is for; this and the following are columns, or fields of the page."""
        return obj.message.destination

    def key(self, obj: WaitingMessage) -> str:
        """The key, if the message has one."""
        return obj.message.key or self.get_empty_value_display()

    def due_time(self, obj: WaitingMessage) -> str:
        """When it is due, in Django's current time zone."""
        return _local(unmarked(obj.message))

    def latest_delivery(self, obj: WaitingMessage) -> str:
        """When it expires, if it does."""
        limit = obj.message.not_after
        return self.get_empty_value_display() if limit is None else _local(limit)

    def next_attempt(self, obj: WaitingMessage) -> str:
        """When a dispatcher tries it next."""
        return "when its destination resumes" if obj.message.is_parked else _local(obj.message.next_attempt)

    def failed_attempts(self, obj: WaitingMessage) -> int:
        """How often forwarding has failed."""
        return obj.message.failure_count

    def last_failure(self, obj: WaitingMessage) -> str:
        """Why forwarding failed last, in short."""
        found = obj.message.failures
        return f"{found[-1].kind}: {found[-1].reason}"[:100] if found else self.get_empty_value_display()

    def failures(self, obj: WaitingMessage) -> str:
        """Why forwarding has failed, as far as the store knows."""
        found = [(f"{_local(each.at)} {each.kind}", each.reason) for each in obj.message.failures]
        return _lines(found) or self.get_empty_value_display()

    def headers(self, obj: WaitingMessage) -> str:
        """A line for each header."""
        return _lines(obj.message.headers.items()) or self.get_empty_value_display()

    def properties(self, obj: WaitingMessage) -> str:
        """A line for each AMQP property."""
        return _lines(obj.message.properties.items()) or self.get_empty_value_display()

    def body(self, obj: WaitingMessage) -> Any:
        """The beginning of the body, as text."""
        whole = obj.message.body
        rest = f"and {len(whole) - _BODY_SHOWN:,} bytes more" if len(whole) > _BODY_SHOWN else ""
        return format_html("<pre>{}</pre>{}", whole[:_BODY_SHOWN].decode(errors="replace"), rest)

    # Actions

    @admin.action(description="Cancel selected %(verbose_name_plural)s", permissions=["cancel"])  # type: ignore[untyped-decorator] # Django ships no types
    def cancel_messages(self, request: HttpRequest, queryset: Selection) -> HttpResponse | None:
        """Cancel messages, after a confirmation."""
        return self._confirmed(request, queryset, CANCEL)

    @admin.action(description="Send selected %(verbose_name_plural)s now", permissions=["reschedule"])  # type: ignore[untyped-decorator] # Django ships no types
    def send_now(self, request: HttpRequest, queryset: Selection) -> HttpResponse | None:
        """Make messages due now, after a confirmation."""
        return self._confirmed(request, queryset, SEND_NOW)

    @admin.action(description="Reschedule selected %(verbose_name_plural)s", permissions=["reschedule"])  # type: ignore[untyped-decorator] # Django ships no types
    def reschedule(self, request: HttpRequest, queryset: Selection) -> HttpResponse | None:
        """Give messages a new due time, after a page that asks for it."""
        return self._confirmed(request, queryset, RESCHEDULE)

    def _confirmed(self, request: HttpRequest, selection: Selection, action: MessageAction) -> HttpResponse | None:
        """Make the change that the user has confirmed, or show the page on which to confirm it."""
        if operation_id := request.POST.get("operation"):
            return self._continue(request, operation_id, action)
        given = request.POST if request.POST.get("post") == _confirmation(selection) else None
        form = RescheduleForm(given) if action is RESCHEDULE else None
        if given is not None and (form is None or form.is_valid()):
            try:
                at = None if form is None else form.new_due_time()
                if selection.message_ids is None:
                    return self._change_all(request, selection, action, at)
                self._change_few(request, selection.message_ids, action, at)
                return None
            except (ConfigurationError, InvalidMessageError) as error:
                if form is None:
                    raise
                form.add_error("at", str(error))
        return self._ask(request, selection, action, form)

    def _ask(
        self, request: HttpRequest, selection: Selection, action: MessageAction, form: RescheduleForm | None
    ) -> HttpResponse:
        """The page that lists the selected messages and asks whether to change them."""
        listed = selection.page(None, SHOWN).messages
        return self._page(
            request,
            action,
            selection=selection,
            form=form,
            media=self.media if form is None else self.media + form.media,
            counted=selection.counted(),
            confirmation=_confirmation(selection),
            listed=[(message, _local(unmarked(message))) for message in listed],
        )

    def _page(self, request: HttpRequest, action: MessageAction, **more: Any) -> HttpResponse:
        """A page between the list and the end of `action`; its form posts the same selection again."""
        context = {
            **self.admin_site.each_context(request),
            "title": f"{action.title}: are you sure?",
            "opts": self.opts,
            "action": action,
            "is_across": request.POST.get("select_across") == "1",
            "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "checkbox": ACTION_CHECKBOX_NAME,
            **more,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "delaystore/admin/confirm.html", context)

    def _change_few(
        self, request: HttpRequest, message_ids: Sequence[str], action: MessageAction, at: datetime | Shift | None
    ) -> None:
        """Change these messages, with the store's audit entries and Django's log, in one transaction."""
        operations = _operations(request)
        with transaction.atomic(using=delayed.store.alias):
            due_time = operations.now() if at is None else at
            results = operations.do_all([_request(action, message_id, due_time) for message_id in message_ids])
            ids: dict[ManagementOutcome, list[str]] = {}
            for message_id, result in zip(message_ids, results, strict=True):
                ids.setdefault(result.outcome, []).append(message_id)
            done = ids.get(ManagementOutcome.DONE, [])
            _log(request, action, done, at)
        if done:
            messages.success(request, f"{action.done}: {_named(done)}.")
        if claimed := ids.get(ManagementOutcome.BEING_DISPATCHED):
            messages.warning(request, f"Being dispatched, and therefore not changed: {_named(claimed)}.")
        if missing := ids.get(ManagementOutcome.NOT_FOUND):
            messages.warning(request, f"No longer waiting, and therefore not changed: {_named(missing)}.")

    def _change_all(
        self, request: HttpRequest, selection: Selection, action: MessageAction, at: datetime | Shift | None
    ) -> HttpResponse | None:
        """Begin an operation on all messages that match, with the audit entry and Django's log in one transaction."""
        operations = _operations(request)
        with transaction.atomic(using=delayed.store.alias):
            if action is CANCEL:
                operation = operations.begin_cancel(selection.wanted)
            elif isinstance(at, Shift):
                operation = operations.begin_reschedule(selection.wanted, by=at.by)
            else:
                delay = 0 if at is None else None
                operation = operations.begin_reschedule(selection.wanted, delay=delay, at=at)
            _log(request, action, [None], at, f"{selection.wanted} (operation {operation.operation_id})")
        return self._continue(request, operation.operation_id, action)

    def _continue(self, request: HttpRequest, operation_id: str, action: MessageAction) -> HttpResponse | None:
        """Take steps of an operation, each a transaction, for `run_seconds`."""
        operations = _operations(request)
        found = operations.operation(operation_id)
        if found is None or found.kind is not action.kind:
            raise PermissionDenied
        ends = time.monotonic() + self.run_seconds

        def listen(operation: Operation) -> None:
            if operation.ended is None and time.monotonic() >= ends:
                raise _TimeIsUpError

        try:
            found = operations.run(operation_id, listen)
        except _TimeIsUpError:
            unfinished = operations.operation(operation_id)
            return self._page(request, action, title=f"{action.title}: not finished", operation=unfinished)
        messages.success(request, f"{action.done}: {counted(found.changed, 'message')} ({found.wanted}).")
        if found.held:
            held = counted(found.held, "message")
            why = "Being dispatched" if found.shift is None else "Being dispatched, or with a new due time out of range"
            messages.warning(request, f"{why}, and therefore not changed: {held}.")
        return None


def _operations(request: HttpRequest) -> Operations:
    """Operations of operators, in the name of the request's user."""
    return delayed.operations.acting_as(request.user.get_username())


def _confirmation(selection: Selection) -> str:
    """The confirmation page's form data. For all that match it is the filter, so that no other filter is confirmed."""
    return str(selection.wanted) if selection.message_ids is None else "yes"


def _request(action: MessageAction, message_id: str, due_time: datetime | Shift) -> MessageRequest:
    if action is CANCEL:
        return CancelRequest(message_id=message_id)
    change = ChangeAction.SEND_NOW if action is SEND_NOW else ChangeAction.RESCHEDULE
    return RescheduleRequest(message_id=message_id, at=due_time, action=change)


def _log(
    request: HttpRequest,
    action: MessageAction,
    message_ids: Sequence[str | None],
    at: datetime | Shift | None,
    about: str = "",
) -> None:
    """Write entries of Django's log; `about` names objects without a message_id."""
    content_type = ContentType.objects.get_for_model(WaitingMessage)
    to = "" if at is None else f" {at}" if isinstance(at, Shift) else f" to {_local(at)}"
    text = f"{action.done}{to}"
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=request.user.pk,
            content_type=content_type,
            object_id=message_id,
            object_repr=(message_id or about)[:200],
            action_flag=action.flag,
            change_message=f"{text}." if message_id else f"{text}: {about}.",
        )
        for message_id in message_ids
    )


def _lines(named: Iterable[tuple[str, Any]]) -> str:
    """A line for each name with its value, as HTML."""
    return str(format_html_join("", "<div>{}: {}</div>", named))


def _local(time: datetime) -> str:
    """A time in Django's current time zone and format, also if USE_TZ is False."""
    return str(localize(timezone.localtime(time)))


def _named(message_ids: Sequence[str]) -> str:
    """How many messages, and the ids of the first."""
    more = ", ..." if len(message_ids) > _REPORTED else ""
    return f"{counted(len(message_ids), 'message')} ({', '.join(message_ids[:_REPORTED])}{more})"
