"""Waiting messages as the admin's change list has them: which are selected, the list of one page, and its filters.

Django's ChangeList pages, searches and filters a queryset. Here its methods `get_queryset` and `get_results` use the
store's search instead, by a `Selection`. Django's templates, widgets and actions stay as they are.

The alternative is an unmanaged model mapped to the store's table, whose name only the settings know. Django would read
times and texts by its own rules, which differ from the store's on each database. It would count millions of rows for
each page, and offer `delete()` and `update()`, which ignore the claims of dispatchers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Self

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from typing_extensions import override

from delaystore.errors import InvalidMessageError
from delaystore.filters import EVERYTHING, MessageFilter
from delaystore.integrations.django import delayed
from delaystore.integrations.django.models import WaitingMessage
from delaystore.message import DelayedMessage, Position
from delaystore.stores.abc import Count, Page
from delaystore.stores.history import HistoryFilter, HistoryPage
from delaystore.stores.records import Ending

_SEARCHES: Final = 5
"""Searches of the store for one page or one count; each reads a bounded number of messages."""
_DESTINATIONS: Final = 20
"""Destinations that the filter lists."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Waiting messages: those of some ids, or all that match a filter.

    It takes the place of a queryset where Django's admin filters one, gets an object, or passes one to an action.
    """

    model: ClassVar = WaitingMessage
    wanted: MessageFilter = EVERYTHING
    message_ids: Sequence[str] | None = None
    """None: all that match `wanted`."""

    def filter(self, *, pk__in: Sequence[str]) -> Self:
        """The messages of these ids, as Django's admin asks for the rows whose boxes are ticked."""
        return replace(self, message_ids=tuple(dict.fromkeys(pk__in)))

    def get(self, *, message_id: str) -> WaitingMessage:
        """The message of that id, as Django's admin asks for the object of a page."""
        try:
            message = delayed.get(message_id)
        except InvalidMessageError:
            message = None
        if message is None:
            raise WaitingMessage.DoesNotExist
        return WaitingMessage.of(message)

    def narrowed(self, **given: Any) -> Self:
        """Select the messages that also meet `given`, which are fields of a MessageFilter."""
        return replace(self, wanted=replace(self.wanted, **given))

    def of_search(self, term: str) -> Self:
        """The message whose key is `term`; if there is none, the messages whose ids begin with it."""
        wanted = self.narrowed(id_prefix=term)  # refuses texts that are neither
        message_id = delayed.store.message_id_of(term)
        return wanted if message_id is None else self.filter(pk__in=[message_id])

    def page(self, after: Position | None, limit: int) -> Page:
        """The first `limit` messages behind `after`; fewer where the store had to look at too many to find them."""
        if self.message_ids is not None:
            return Page(self._of_ids(), None)
        found: list[DelayedMessage] = []
        for _ in range(_SEARCHES):
            page = delayed.operations.search(self.wanted, after=after, limit=limit - len(found))
            found += page.messages
            after = page.next_key
            if after is None or len(found) >= limit:
                break
        return Page(found, after)

    def count(self) -> Count:
        """How many messages these are; not `exact`: at least that many with a filter, and about that many without."""
        if self.message_ids is not None:
            return Count(len(self._of_ids()), exact=True)
        if not self.wanted:
            return delayed.store.estimate_count()
        total, after = 0, None
        for _ in range(_SEARCHES):
            found = delayed.store.count_matching(self.wanted, after=after)
            total, after = total + found.count, found.next_key
            if after is None:
                break
        return Count(total, exact=after is None)

    def counted(self) -> str:
        """The count, for people."""
        count = self.count()
        about = "" if count.exact else "at least " if self.wanted else "about "
        return f"{about}{count.messages:,} waiting message{'' if count.messages == 1 else 's'}"

    def _of_ids(self) -> Sequence[DelayedMessage]:
        found = delayed.store.get_many(self.message_ids or ())
        return [message for message in found.values() if self.wanted.matches(message)]


class MessageChangeList(ChangeList):  # type: ignore[misc] # Django ships no types
    """A page of the store's search. `p`, Django's number of the page, is the position behind which the page begins."""

    @override
    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Selection:
        self.filter_specs, self.has_filters, unknown, _, self.has_active_filters = self.get_filters(request)
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        selection: Selection = self.root_queryset
        try:
            if unknown:
                raise InvalidMessageError(f"the list has no filter {next(iter(unknown))!r}")
            for spec in self.filter_specs:
                selection = spec.queryset(request, selection)
            selection, _ = self.model_admin.get_search_results(request, selection, self.query)
        except InvalidMessageError as error:
            messages.error(request, str(error))
            raise IncorrectLookupParameters(str(error)) from None
        return selection

    @override
    def get_results(self, request: HttpRequest) -> None:
        given = request.GET.get(PAGE_VAR, "1")
        self.is_first_page = given.isdecimal()
        try:
            after = None if self.is_first_page else Position.parse(given)
        except ValueError:
            messages.error(request, "This page does not exist; the list begins at its first page.")
            raise IncorrectLookupParameters from None
        page = self.queryset.page(after, self.list_per_page)
        self.result_list = [WaitingMessage.of(message) for message in page.messages]
        self.next_page = None if page.next_key is None else self.get_query_string({PAGE_VAR: str(page.next_key)})
        self.first_page = self.get_query_string()
        is_all = self.is_first_page and page.next_key is None
        count = Count(len(self.result_list), exact=True) if is_all else self.queryset.count()
        self.result_count, self.is_exact = count.messages, count.exact
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = not is_all
        self.paginator = self.model_admin.get_paginator(request, self.result_list, self.list_per_page)


class InputFilter(admin.ListFilter):  # type: ignore[misc] # Django ships no types
    """A list filter with links, as Django's have them, and a form for any other value."""

    template = "delaystore/admin/filter.html"
    parameters: ClassVar[Mapping[str, str]]
    """The labels of the form's inputs, by the name of the parameter."""
    input_type = "text"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.parameters:
            given = params.pop(name, "")
            value = given[-1] if isinstance(given, list) else given  # a list since Django 5.0
            if value:
                self.used_parameters[name] = value

    @override
    def has_output(self) -> bool:
        return True

    @override
    def expected_parameters(self) -> list[str]:
        return list(self.parameters)

    @override
    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        self.others = [(name, value) for name, value in changelist.params.items() if name not in self.parameters]
        for title, given in [("All", {}), *self.links()]:
            unset: dict[str, Any] = dict.fromkeys(self.parameters)
            yield {
                "selected": given == self.used_parameters,
                "query_string": changelist.get_query_string({**unset, **given}),
                "display": title,
            }

    def links(self) -> Sequence[tuple[str, dict[str, str]]]:
        """Titles of links, each with the parameters that it gives."""
        raise NotImplementedError

    def inputs(self) -> Sequence[tuple[str, str, str]]:
        """Name, label and value of each input."""
        return [(name, label, self.shown(name)) for name, label in self.parameters.items()]

    def shown(self, name: str) -> str:
        """The parameter as its input shows it."""
        return str(self.used_parameters.get(name, ""))


class DestinationFilter(InputFilter):
    """Messages for one destination. Links are the busiest destinations, unless more messages wait than are counted."""

    title = "destination"
    parameters: ClassVar = {"destination": "Another destination"}

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        is_quick = delayed.store.estimate_count().exact
        self._names = list(delayed.operations.backlog(_DESTINATIONS)) if is_quick else []

    @override
    def links(self) -> Sequence[tuple[str, dict[str, str]]]:
        return [(name, {"destination": name}) for name in self._names]

    @override
    def queryset(self, request: HttpRequest, queryset: Selection) -> Selection:
        return queryset.narrowed(**self.used_parameters)


class DueTimeFilter(InputFilter):
    """Messages that are due from one time to another, in Django's current time zone."""

    title = "due time"
    parameters: ClassVar = {"since": "From", "until": "Before"}
    input_type = "datetime-local"

    @override
    def links(self) -> Sequence[tuple[str, dict[str, str]]]:
        now = timezone.now().replace(second=0, microsecond=0)
        ahead = {"Next hour": 1, "Next 24 hours": 24, "Next 7 days": 168}
        ranges = {title: {"since": now, "until": now + timedelta(hours=hours)} for title, hours in ahead.items()}
        named = {"Overdue": {"until": now}, **ranges}
        return [(title, {name: time.isoformat() for name, time in given.items()}) for title, given in named.items()]

    @override
    def shown(self, name: str) -> str:
        time = given_time(self.used_parameters.get(name))
        return "" if time is None else timezone.localtime(time).strftime("%Y-%m-%dT%H:%M")

    @override
    def queryset(self, request: HttpRequest, queryset: Selection) -> Selection:
        return queryset.narrowed(**{name: given_time(value) for name, value in self.used_parameters.items()})


class StateFilter(admin.SimpleListFilter):  # type: ignore[misc] # Django ships no types
    """Messages that failed before, or that wait for a paused destination."""

    title = "state"
    parameter_name = "state"

    @override
    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [("failing", "Has failed"), ("paused", "Destination is paused")]

    @override
    def queryset(self, request: HttpRequest, queryset: Selection) -> Selection:
        if self.value() not in (None, "failing", "paused"):
            raise InvalidMessageError(f"unknown state {self.value()!r}")
        return queryset if self.value() is None else queryset.narrowed(**{self.value(): True})


class HistoryForm(forms.Form):  # type: ignore[misc] # Django ships no types
    """A search of the history: messages that have left the store."""

    q = forms.CharField(label="Message id or key", required=False)
    destination = forms.CharField(required=False)
    outcome = forms.ChoiceField(choices=[("", "any"), *((each.value, each.value) for each in Ending)], required=False)

    def page(self, after: str, limit: int) -> HistoryPage:
        """The valid form's entries behind the position `after`. Raises ValueError for values that none can have."""
        term, destination, outcome = (self.cleaned_data[name] or None for name in ("q", "destination", "outcome"))
        wanted = HistoryFilter(
            message_id=term, destination=destination, ending=None if outcome is None else Ending(outcome)
        )
        position = Position.parse(after) if after else None
        found = delayed.operations.history(wanted, after=position, limit=limit)
        if term is None or found.entries:
            return found
        return delayed.operations.history(replace(wanted, message_id=None, key=term), after=position, limit=limit)


def given_time(text: str | None) -> datetime | None:
    """The time of a query's parameter, aware; None: there is none. Raises InvalidMessageError."""
    try:
        time: datetime | None = forms.DateTimeField(required=False).clean(text)
        return time if time is None or timezone.is_aware(time) else timezone.make_aware(time)
    except ValidationError as error:
        raise InvalidMessageError(f"{text!r} is not a time: {' '.join(error.messages)}") from None
