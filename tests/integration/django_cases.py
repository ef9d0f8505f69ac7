"""What holds in a Django project on each database; test_django.py runs it by Django's own test runner."""

import threading
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from django.conf import settings
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client, SimpleTestCase, TestCase, TransactionTestCase, override_settings

from delaystore import DelayedDelivery, DelayedMessage, SqlDelayedMessageStore
from delaystore.errors import DuplicateMessageError, StoreSetupError
from delaystore.filters import EVERYTHING
from delaystore.integrations.django import delayed
from delaystore.integrations.django._delivery import store_engine, store_url
from delaystore.integrations.django.admin import WaitingMessageAdmin
from delaystore.integrations.django.apps import check_settings
from delaystore.message import FailedAttempt
from delaystore.settings import TransactionMode
from delaystore.stores.abc import ManagementOutcome
from delaystore.stores.operable import STEP
from delaystore.stores.records import Ending, FailedDelivery
from delaystore.transports.memory import InMemoryTransport

HOUR = 3600


class Declined(Exception):
    """The business says no."""


def waiting() -> list[str]:
    """The ids of the waiting messages."""
    return sorted(message.message_id for message in delayed.operations.search(EVERYTHING).messages)


class Emptied(TransactionTestCase):
    """Begins with nothing that waits."""

    available_apps = settings.INSTALLED_APPS  # after each test, permissions that none of these needs are not made again

    def setUp(self) -> None:
        for message_id in waiting():
            delayed.cancel(message_id)


class Transactions(Emptied):
    """Sending belongs to Django's transaction."""

    def test_a_row_and_a_message_are_committed_together(self) -> None:
        connection.close()  # the very first use of a connection must not roll back what was done on it before
        with transaction.atomic():
            Group.objects.create(name="business")
            delayed.send("queue", b"", delay=HOUR, message_id="both")
        self.assertTrue(Group.objects.filter(name="business").exists())
        self.assertEqual(waiting(), ["both"])

    def test_a_rollback_takes_both_back(self) -> None:
        with self.assertRaises(Declined), transaction.atomic():
            Group.objects.create(name="business")
            delayed.send("queue", b"", delay=HOUR)
            raise Declined
        self.assertFalse(Group.objects.exists())
        self.assertEqual(waiting(), [])

    def test_a_savepoint_takes_back_what_came_after_it(self) -> None:
        with transaction.atomic():
            delayed.send("queue", b"", delay=HOUR, message_id="before")
            with self.assertRaises(Declined), transaction.atomic():
                delayed.send("queue", b"", delay=HOUR, message_id="within")
                delayed.cancel("before")
                raise Declined
            delayed.send("queue", b"", delay=HOUR, message_id="after")
        self.assertEqual(waiting(), ["after", "before"])

    def test_what_was_sent_in_a_transaction_is_cancelled_and_rescheduled_in_it(self) -> None:
        later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
        with transaction.atomic():
            delayed.send("queue", b"", delay=HOUR, message_id="cancelled")
            delayed.send("queue", b"", delay=HOUR, message_id="moved")
            self.assertEqual(delayed.cancel("cancelled"), ManagementOutcome.DONE)
            self.assertEqual(delayed.reschedule("moved", at=later), ManagementOutcome.DONE)
            self.assertIsNone(delayed.get("cancelled"))
        self.assertEqual(delayed.get("moved").due_time, later)

    def test_a_cancellation_is_rolled_back_with_the_payment(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="reminder")
        with self.assertRaises(Declined), transaction.atomic():
            delayed.cancel("reminder")
            raise Declined
        self.assertEqual(waiting(), ["reminder"])

    def test_a_duplicate_leaves_the_transaction_alive(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        with transaction.atomic():
            Group.objects.create(name="business")
            with self.assertRaises(DuplicateMessageError):
                delayed.send("queue", b"", delay=HOUR, message_id="one")
        self.assertTrue(Group.objects.filter(name="business").exists())

    def test_outside_of_a_transaction_each_call_is_committed(self) -> None:
        message = DelayedMessage(
            message_id="one", destination="queue", due_time=datetime.now(UTC) + timedelta(hours=1), body=b""
        )
        self.assertEqual(delayed.send_many([message]), 1)
        connection.close()
        self.assertEqual(waiting(), ["one"])

    def test_without_autocommit_each_call_is_part_of_what_the_program_commits(self) -> None:
        transaction.set_autocommit(False)
        try:
            delayed.send("queue", b"", delay=HOUR, message_id="undone")
            transaction.rollback()
            delayed.send("queue", b"", delay=HOUR, message_id="kept")
            transaction.commit()
        finally:
            transaction.set_autocommit(True)
        self.assertEqual(waiting(), ["kept"])

    def test_what_a_commit_calls_may_send(self) -> None:
        with transaction.atomic(durable=True):
            transaction.on_commit(lambda: delayed.send("queue", b"", delay=HOUR, message_id="after the commit"))
        self.assertEqual(waiting(), ["after the commit"])

    def test_no_second_connection_stays_open(self) -> None:
        """A test runner could not drop its database."""
        if connection.vendor != "postgresql":
            self.skipTest("only PostgreSQL keeps a database that others use")
        with override_settings(DELAYSTORE={"ENDPOINT": "other"}):
            with self.assertRaises(StoreSetupError):
                delayed.send("queue", b"", delay=HOUR)
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
                self.assertEqual(cursor.fetchone(), (0,))

    def test_the_dispatcher_is_woken_after_the_commit(self) -> None:
        if connection.settings_dict["NAME"].startswith("file:"):
            self.skipTest("a database in memory has no second connection")
        transport = InMemoryTransport()
        transport.declare("queue")
        store = SqlDelayedMessageStore(store_engine(connection.settings_dict))
        with DelayedDelivery("shop", store, transport) as delivery:
            woken = threading.Event()
            with patch.object(delivery._dispatcher, "wake_up", side_effect=lambda _time: woken.set()):
                with transaction.atomic():
                    delivery.enlist(connection).send("queue", b"", delay=HOUR)
                    self.assertFalse(woken.is_set())
                self.assertTrue(woken.is_set())
                woken.clear()
                with self.assertRaises(Declined), transaction.atomic():
                    delivery.enlist(connection).send("queue", b"", delay=HOUR)
                    raise Declined
                self.assertFalse(woken.is_set())

    def test_going_back_would_lose_what_waits(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="kept")
        with self.assertRaisesRegex(CommandError, "1 message is waiting and would be lost"):
            call_command("migrate", "delaystore", "zero", verbosity=0)
        self.assertEqual(waiting(), ["kept"])
        delayed.cancel("kept")
        call_command("migrate", "delaystore", "zero", verbosity=0)
        call_command("migrate", "delaystore", verbosity=0)
        self.assertEqual(waiting(), [])


LIST = "/admin/delaystore/waitingmessage/"
EVERY = str(EVERYTHING)
"""What confirms an action on all messages."""


class AdminCase(TestCase):
    """A staff user who may see waiting messages."""

    def setUp(self) -> None:
        self.client = Client()
        self.user = User.objects.create_user("operator", is_staff=True)
        self.client.force_login(self.user)
        self.allow("view")

    def allow(self, *actions: str) -> None:
        names = [f"{action}_waitingmessage" for action in actions]
        self.user.user_permissions.add(*Permission.objects.filter(codename__in=names))

    def listed(self, **query: str) -> list[str]:
        return [each.pk for each in self.client.get(LIST, query).context["cl"].result_list]

    def act(self, action: str, *selected: str, url: str = LIST, confirmed: str = "yes", **data: str) -> HttpResponse:
        given = {"action": action, ACTION_CHECKBOX_NAME: selected, "post": confirmed, **data}
        return self.client.post(url, given, follow=True)

    def noted(self) -> list[tuple[str, str | None, str, str]]:
        """The audit trail of the store, the oldest entry first."""
        changes = reversed(delayed.operations.changes())
        return [(each.action, each.message_id, each.by, each.way) for each in changes]


class Lists(AdminCase):
    """The change list and its filters."""

    def test_it_pages_by_the_store_s_positions(self) -> None:
        for number in range(101):
            delayed.send("queue", b"body", delay=HOUR + number, message_id=f"m/{number}")
        self.allow("delete")
        page = self.client.get(LIST)
        self.assertContains(page, "101 waiting messages")
        self.assertContains(page, f'href="{LIST}m_2F0/change/')
        self.assertContains(page, "Select all 101 waiting messages")
        self.assertNotContains(page, "m/100<")
        rest = self.client.get(LIST + page.context["cl"].next_page)
        self.assertEqual([each.pk for each in rest.context["cl"].result_list], ["m/100"])
        self.assertContains(rest, "First page")

    def test_it_shows_what_a_user_looks_for(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="one", key="order 7")
        page = self.client.get(LIST)
        for text in ("one", "queue", "order 7", "Next attempt", "Failed attempts", "Last failure", "1 waiting message"):
            self.assertContains(page, text)

    def test_it_searches_by_key_and_by_the_beginning_of_ids(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="order-1", key="ada")
        delayed.send("queue", b"", delay=HOUR + 1, message_id="order-2")
        delayed.send("queue", b"", delay=HOUR + 2, message_id="bill-1")
        self.assertEqual(self.listed(q="order"), ["order-1", "order-2"])
        self.assertEqual(self.listed(q="order-2"), ["order-2"])
        self.assertEqual(self.listed(q=" ada "), ["order-1"])
        self.assertEqual(self.listed(q="ada", destination="other"), [])
        self.assertEqual(self.listed(q="nothing"), [])

    def test_it_filters(self) -> None:
        now = datetime.now(UTC)
        delayed.send("even", b"", at=now + timedelta(minutes=30), message_id="soon")
        delayed.send("odd", b"", at=now + timedelta(days=2), message_id="later")
        page = self.client.get(LIST)
        links = {
            choice["display"]: choice["query_string"]
            for spec in page.context["cl"].filter_specs
            for choice in spec.choices(page.context["cl"])
        }
        for title, found in (("even", ["soon"]), ("Next hour", ["soon"]), ("Next 7 days", ["soon", "later"])):
            with self.subTest(title):
                listed = self.client.get(LIST + links[title]).context["cl"].result_list
                self.assertEqual([each.pk for each in listed], found)
        self.assertEqual(self.listed(state="failing"), [])
        self.assertEqual(self.listed(destination="odd", q="later"), ["later"])
        delayed.operations.pause("odd")
        delayed.operations.reschedule_one("later", delay=0)
        delayed.store.park(delayed.store.now())
        self.assertEqual(self.listed(state="paused"), ["later"])
        self.assertContains(self.client.get(LIST, {"state": "paused"}), "when its destination resumes")

    def test_it_refuses_what_no_list_has(self) -> None:
        for name, value, reason in (
            ("p", "nonsense", "This page does not exist"),
            ("since", "nonsense", "is not a time"),
            ("state", "nonsense", "Unknown state"),
            ("message_id", "one", "The list has no filter"),
            ("destination", "a\nb", "control character"),
        ):
            with self.subTest(name):
                answer = self.client.get(LIST, {name: value})
                self.assertRedirects(answer, f"{LIST}?e=1", fetch_redirect_response=False)
                self.assertContains(self.client.get("/admin/"), reason)

    def test_it_takes_a_permission(self) -> None:
        self.user.user_permissions.clear()
        self.assertEqual(self.client.get(LIST).status_code, 403)

    def test_nothing_can_be_added_saved_or_deleted(self) -> None:
        """Django's own ways to change rows know nothing of claims."""
        self.client.force_login(User.objects.create_superuser("root"))
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        self.assertEqual(self.client.get(f"{LIST}add/").status_code, 403)
        self.assertEqual(self.client.post(f"{LIST}one/change/").status_code, 403)
        self.assertEqual(self.client.post(f"{LIST}one/delete/", {"post": "yes"}).status_code, 403)
        self.act("delete_selected", "one")
        self.assertIsNotNone(delayed.get("one"))


class Messages(AdminCase):
    """The page of a message."""

    def test_it_shows_a_message_and_escapes_it(self) -> None:
        delayed.send("queue", b"<script>", delay=HOUR, message_id="a/b", headers={"kind": "<b>"}, key="k&1")
        page = self.client.get(f"{LIST}a_2Fb/change/")
        self.assertContains(page, "&lt;b&gt;")
        self.assertContains(page, "k&amp;1")
        self.assertNotContains(page, "script&gt;")
        self.user.user_permissions.add(Permission.objects.get(codename="view_body"))
        self.assertContains(self.client.get(f"{LIST}a_2Fb/change/"), "&lt;script&gt;")

    def test_it_shows_why_forwarding_failed(self) -> None:
        delayed.send("queue", b"", delay=0, message_id="one", headers={"a": 1})
        now = datetime.now(UTC)
        with transaction.atomic():
            store = delayed.store.enlist(connection)
            claimed = store.fetch_next_due_timeout(store.now())
            attempt = FailedAttempt(at=now, kind="Refused", reason="<no queue>")
            store.count_failures([FailedDelivery(message=claimed, next_attempt=now, attempt=attempt)])
        self.assertContains(self.client.get(LIST, {"state": "failing"}), "Refused: &lt;no queue&gt;")
        page = self.client.get(f"{LIST}one/change/")
        self.assertContains(page, "Refused: &lt;no queue&gt;</div>")
        self.assertContains(page, "<div>a: 1</div>")

    def test_its_buttons_are_those_of_the_user_s_permissions(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="one")

        def buttons() -> list[str]:
            return [each.title for each in self.client.get(f"{LIST}one/change/").context["buttons"]]

        self.assertEqual(buttons(), [])
        self.allow("delete")
        self.assertEqual(buttons(), ["Cancel"])
        self.allow("change")
        self.assertEqual(buttons(), ["Cancel", "Send now", "Reschedule"])

    def test_a_message_that_does_not_wait_is_not_found(self) -> None:
        for message_id in ("gone", "x" * 300, "a_00b"):
            with self.subTest(message_id):
                page = self.client.get(f"{LIST}{message_id}/change/", follow=True)
                self.assertContains(page, "Perhaps it was deleted?")


class Histories(AdminCase):
    """Messages that wait no more."""

    def setUp(self) -> None:
        super().setUp()
        self.assertContains(self.client.get(f"{LIST}history/"), "No history is kept")
        delayed.store.keep_history(timedelta(days=30))
        delayed.send("queue", b"", delay=0, message_id="a/b", key="invoice 7")
        with transaction.atomic():
            store = delayed.store.enlist(connection)
            store.remove_ended([store.fetch_next_due_timeout(store.now())], Ending.DELIVERED, store.now())
        delayed.send("<other>", b"", delay=HOUR, message_id="unpaid")
        delayed.operations.acting_as("ada").cancel_one("unpaid")

    def found(self, **query: str) -> list[str]:
        return [entry.message_id for entry, *_ in self.client.get(f"{LIST}history/", query).context["rows"]]

    def test_it_is_searched_and_filtered(self) -> None:
        self.assertEqual(self.found(), ["unpaid", "a/b"])
        self.assertEqual(self.found(q=" a/b "), ["a/b"])
        self.assertEqual(self.found(q="invoice 7", outcome="delivered"), ["a/b"])
        self.assertEqual(self.found(destination="<other>"), ["unpaid"])
        self.assertEqual(self.found(outcome="expired"), [])
        page = self.client.get(f"{LIST}history/")
        for text in ("delivered", "cancelled", "&lt;other&gt;", "ada", "invoice 7", "reaches back to"):
            self.assertContains(page, text)

    def test_it_pages(self) -> None:
        for number in range(120):
            delayed.send("many", b"", delay=HOUR, message_id=f"m{number}")
            delayed.cancel(f"m{number}")
        page = self.client.get(f"{LIST}history/", {"destination": "many"})
        rest = self.client.get(f"{LIST}history/?{page.context['next_page']}")
        self.assertEqual([len(each.context["rows"]) for each in (page, rest)], [100, 20])
        self.assertIsNone(rest.context["next_page"])

    def test_a_missing_message_s_page_leads_to_it(self) -> None:
        page = self.client.get(f"{LIST}a_2Fb/change/", follow=True)
        self.assertContains(page, "Perhaps it was deleted?")
        self.assertEqual([entry.message_id for entry, *_ in page.context["rows"]], ["a/b"])
        self.assertContains(self.client.get(LIST, {"q": "a/b"}), f'href="{LIST}history/?q=a/b"')

    def test_it_tells_what_cannot_be(self) -> None:
        for query in ({"q": "x" * 300}, {"destination": "a\nb"}, {"outcome": "lost"}, {"p": "nonsense"}):
            with self.subTest(query):
                self.assertContains(self.client.get(f"{LIST}history/", query), "errorlist")

    def test_it_takes_the_permission_to_view_messages(self) -> None:
        self.user.user_permissions.clear()
        self.assertEqual(self.client.get(f"{LIST}history/").status_code, 403)


class Actions(AdminCase):
    """Changes of selected messages, with their confirmation, audit entries and log."""

    def setUp(self) -> None:
        super().setUp()
        self.allow("change", "delete")
        for number in range(3):
            delayed.send("queue", b"", delay=HOUR + number, message_id=f"m{number}")

    def test_each_asks_before_it_changes_anything(self) -> None:
        for action in ("cancel_messages", "send_now", "reschedule"):
            with self.subTest(action):
                page = self.act(action, "m0", "m2", confirmed="", index="0", select_across="0")
                self.assertContains(page, "2 waiting messages")
                for text in ("m0 to queue", "m2 to queue"):
                    self.assertContains(page, text)
                self.assertNotContains(page, "m1 to queue")
        self.assertEqual(waiting(), ["m0", "m1", "m2"])
        self.assertEqual(self.noted(), [])
        self.assertFalse(LogEntry.objects.exists())

    def test_it_cancels(self) -> None:
        page = self.act("cancel_messages", "m0", "m2", "gone")
        self.assertContains(page, "Cancelled: 2 messages (m0, m2).")
        self.assertContains(page, "No longer waiting, and therefore not changed: 1 message (gone).")
        self.assertEqual(waiting(), ["m1"])
        done = [("cancel", "m0", "operator", "django"), ("cancel", "m2", "operator", "django")]
        self.assertCountEqual(self.noted(), done)
        entries = LogEntry.objects.filter(user=self.user, action_flag=DELETION)
        self.assertCountEqual([(each.object_id, each.object_repr) for each in entries], [("m0", "m0"), ("m2", "m2")])

    @override_settings(TIME_ZONE="UTC")
    def test_it_reschedules_and_the_message_s_history_says_so(self) -> None:
        page = self.act("reschedule", "m0", at_0="2099-01-01", at_1="12:00:00")
        self.assertContains(page, "Rescheduled: 1 message (m0).")
        self.assertEqual(delayed.get("m0").due_time, datetime(2099, 1, 1, 12, tzinfo=UTC))
        self.assertEqual(self.noted(), [("reschedule", "m0", "operator", "django")])
        self.assertContains(self.client.get(f"{LIST}m0/history/"), "Rescheduled to Jan. 1, 2099, noon.")

    def test_it_moves_due_times(self) -> None:
        before = {each: delayed.get(each).due_time for each in waiting()}
        self.assertContains(self.act("reschedule", "m0", by="7d"), "Rescheduled: 1 message (m0).")
        self.act("reschedule", "m0", confirmed=EVERY, select_across="1", by="-2h")
        moved = {each: delayed.get(each).due_time - before[each] for each in waiting()}
        hours = timedelta(hours=-2)
        self.assertEqual(moved, {"m0": timedelta(days=7) + hours, "m1": hours, "m2": hours})
        self.assertContains(self.client.get(f"{LIST}m0/history/"), "Rescheduled by 7 days.")
        for wrong in ({"by": "x"}, {"by": "0"}, {}, {"by": "1d", "at_0": "2099-01-01", "at_1": "12:00:00"}):
            self.assertContains(self.act("reschedule", "m1", **wrong), "errorlist")
        self.assertEqual(delayed.get("m1").due_time - before["m1"], hours)

    def test_it_sends_now(self) -> None:
        self.assertContains(self.act("send_now", "m1"), "Made due now: 1 message (m1).")
        self.assertLessEqual(delayed.get("m1").due_time, datetime.now(UTC) + timedelta(minutes=1))
        self.assertEqual(self.noted(), [("send-now", "m1", "operator", "django")])

    def test_it_changes_nothing_without_the_permission(self) -> None:
        for kept, refused in (("delete", ("reschedule", "send_now")), ("change", ("cancel_messages",))):
            self.user.user_permissions.clear()
            self.allow("view", kept)
            self.user = User.objects.get(pk=self.user.pk)
            for action in refused:
                with self.subTest(action):
                    page = self.act(action, "m0", at_0="2099-01-01", at_1="12:00:00")
                    self.assertContains(page, "No action selected.")
        self.assertEqual(self.noted(), [])
        self.assertEqual(waiting(), ["m0", "m1", "m2"])

    def test_all_that_match_are_changed_by_one_operation(self) -> None:
        delayed.send("other", b"", delay=HOUR, message_id="kept")
        url = f"{LIST}?destination=queue"
        asked = self.act("cancel_messages", "m0", url=url, confirmed="", index="0", select_across="1")
        self.assertContains(asked, "Cancel 3 waiting messages: destination queue?")
        self.assertContains(asked, 'name="post" value="destination queue"')
        for other in ("yes", "all messages"):
            again = self.act("cancel_messages", "m0", url=url, confirmed=other, select_across="1")
            self.assertContains(again, "Cancel 3 waiting messages: destination queue?")
        page = self.act("cancel_messages", "m0", url=url, confirmed="destination queue", select_across="1")
        self.assertContains(page, "Cancelled: 3 messages (destination queue).")
        self.assertEqual(waiting(), ["kept"])
        begun, ended = reversed(delayed.operations.changes())
        self.assertEqual((begun.way, begun.by, ended.count), ("django", "operator", 3))
        entry = LogEntry.objects.get()
        self.assertEqual((entry.object_id, entry.action_flag), (None, DELETION))
        self.assertIn(begun.operation_id, entry.change_message)
        self.assertContains(self.client.get("/admin/"), "destination queue (operation")

    def test_all_that_match_are_sent_now_and_rescheduled(self) -> None:
        self.act("reschedule", "m0", confirmed=EVERY, select_across="1", at_0="2099-01-01", at_1="12:00:00")
        self.assertEqual({delayed.get(each).due_time.year for each in waiting()}, {2099})
        self.act("send_now", "m0", confirmed=EVERY, select_across="1")
        self.assertEqual({delayed.get(each).due_time.year > 2098 for each in waiting()}, {False})

    def test_a_long_operation_is_continued_by_the_next_request(self) -> None:
        delayed.send_many(
            DelayedMessage(
                message_id=f"n{number:05}",
                destination="queue",
                due_time=datetime.now(UTC) + timedelta(hours=1),
                body=b"",
            )
            for number in range(STEP)
        )
        with patch.object(WaitingMessageAdmin, "run_seconds", 0.0):
            page = self.act("cancel_messages", "m0", confirmed=EVERY, select_across="1")
            self.assertContains(page, f"Cancelled so far: {STEP} of {STEP} examined messages.")
            operation_id = page.context["operation"].operation_id
            self.assertEqual(len(waiting()), 3)
            refused = self.act("reschedule", "m0", operation=operation_id)
            self.assertEqual(refused.status_code, 403)
            page = self.act("cancel_messages", "m0", operation=operation_id)
        self.assertContains(page, f"Cancelled: {STEP + 3:,} messages (all messages).")
        self.assertEqual(waiting(), [])

    def test_a_time_out_of_range_is_told_beside_its_field(self) -> None:
        for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
            for day, hour in (("0001-01-01", "00:00"), ("9999-12-31", "23:59")):
                with self.subTest(zone=zone, day=day), override_settings(TIME_ZONE=zone):
                    for confirmed, across in (("yes", "0"), (EVERY, "1")):
                        time = {"at_0": day, "at_1": hour}
                        page = self.act("reschedule", "m0", confirmed=confirmed, select_across=across, **time)
                        self.assertContains(page, "out of range")
        self.assertContains(self.act("reschedule", "m0", at_0="nonsense", at_1="12:00"), "Enter a valid date.")
        self.assertEqual(self.noted(), [])

    def test_times_are_local_also_without_use_tz(self) -> None:
        for use_tz in (True, False):
            with self.subTest(use_tz=use_tz), override_settings(USE_TZ=use_tz, TIME_ZONE="Asia/Tokyo"):
                self.act("reschedule", "m0", at_0="2099-01-01", at_1="12:10:00")
                self.assertEqual(delayed.get("m0").due_time, datetime(2099, 1, 1, 3, 10, tzinfo=UTC))
                shown = "Jan. 1, 2099, 12:10 p.m."
                self.assertContains(self.client.get(f"{LIST}m0/change/"), shown, 2)  # due time and next attempt
                self.assertContains(self.client.get(LIST, {"since": "2099-01-01T12:10"}), shown, 2)
                self.assertEqual(self.listed(since="2099-01-01T12:11"), [])

    def test_what_another_site_posts_is_refused(self) -> None:
        hostile = Client(enforce_csrf_checks=True)
        hostile.force_login(self.user)
        given = {"action": "cancel_messages", ACTION_CHECKBOX_NAME: "m0", "post": "yes"}
        self.assertEqual(hostile.post(LIST, given).status_code, 403)
        self.assertIsNotNone(delayed.get("m0"))

    def test_ids_that_no_message_can_have_are_told(self) -> None:
        self.assertContains(self.act("cancel_messages", "x" * 300), "at most 255 are allowed")
        self.assertEqual(waiting(), ["m0", "m1", "m2"])


class Claims(Emptied):
    """What needs a transaction of its own."""

    def setUp(self) -> None:
        super().setUp()
        self.client = Client()
        self.client.force_login(User.objects.create_superuser("operator"))

    def post(self, action: str, *selected: str, **data: str) -> HttpResponse:
        given = {"action": action, ACTION_CHECKBOX_NAME: selected, "post": "yes", **data}
        return self.client.post(LIST, given, follow=True)

    def test_a_message_that_is_being_dispatched_stays(self) -> None:
        if connection.settings_dict["NAME"].startswith("file:"):
            self.skipTest("a database in memory has no second connection")
        delayed.send("queue", b"", delay=0, message_id="claimed")
        delayed.send("queue", b"", delay=HOUR, message_id="free")
        other = SqlDelayedMessageStore(store_engine(connection.settings_dict))
        other.initialize("shop", TransactionMode.RECEIVE_ONLY)
        if connection.vendor == "sqlite":  # where a lease outlives the transaction
            claimed = other.fetch_next_due_timeout(other.now())
            page = self.post("cancel_messages", "claimed", "free")
            self.assertTrue(other.increment_failure_count(claimed))
        else:
            with other.transaction() as dispatcher:
                self.assertIsNotNone(dispatcher.fetch_next_due_timeout(other.now()))
                page = self.post("cancel_messages", "claimed", "free")
        self.assertContains(page, "Cancelled: 1 message (free).")
        self.assertContains(page, "Being dispatched, and therefore not changed: 1 message (claimed).")
        self.assertEqual([each.object_id for each in LogEntry.objects.all()], ["free"])
        self.assertEqual(waiting(), ["claimed"])

    def test_a_change_and_its_entry_in_the_log_are_made_together(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        with patch.object(LogEntry.objects, "bulk_create", side_effect=Declined), self.assertRaises(Declined):
            self.post("cancel_messages", "one")
        with patch.object(LogEntry.objects, "bulk_create", side_effect=Declined), self.assertRaises(Declined):
            self.post("cancel_messages", "one", post=EVERY, select_across="1")
        self.assertEqual(waiting(), ["one"])
        self.assertEqual(delayed.operations.operations(), [])

    def test_all_pages_tell_what_the_store_says(self) -> None:
        with override_settings(DELAYSTORE={"ENDPOINT": "without tables"}):
            for answer in (
                self.client.get(LIST, follow=True),
                self.client.get(f"{LIST}one/change/", follow=True),
                self.client.get(f"{LIST}one/history/", follow=True),
                self.post("cancel_messages", "one"),
            ):
                self.assertContains(answer, "tables are missing")


class Settings(SimpleTestCase):
    """Mistakes in the settings are told in one line."""

    def test_mistakes(self) -> None:
        for wrong, reason in (
            (None, "set DELAYSTORE"),
            ({}, "set DELAYSTORE"),
            ({"ENDPOINT": "shop", "ENDPIONT": 1}, "unknown key 'ENDPIONT' in DELAYSTORE; known are DATABASE, ENDPOINT"),
            ({"ENDPOINT": "shop", "DATABASE": "other"}, "'other', but DATABASES has no such entry"),
            ({"ENDPOINT": "shop", "SETTINGS": {"batch_size": 0}}, r"DELAYSTORE\['SETTINGS'\]: batch_size"),
            ({"ENDPOINT": "shop", "SETTINGS": {"batchsize": 1}}, r"DELAYSTORE\['SETTINGS'\]: .*batchsize"),
        ):
            with self.subTest(wrong), override_settings(DELAYSTORE=wrong):
                [error] = check_settings()
                self.assertRegex(str(error.msg), reason)
        self.assertEqual(check_settings(), [])

    def test_databases_as_urls(self) -> None:
        for database, url in (
            (
                {
                    "ENGINE": "django.db.backends.postgresql",
                    "NAME": "shop",
                    "USER": "u",
                    "PASSWORD": "p@",
                    "HOST": "db",
                },
                "postgresql+psycopg://u:p%40@db/shop",
            ),
            (
                {
                    "ENGINE": "django.contrib.gis.db.backends.postgis",
                    "NAME": "shop",
                    "HOST": "/run/pg",
                    "PORT": "5433",
                    "OPTIONS": {"sslmode": "require", "pool": True},
                },
                "postgresql+psycopg:///shop?host=%2Frun%2Fpg&port=5433&sslmode=require",
            ),
            (
                {
                    "ENGINE": "django.db.backends.mysql",
                    "NAME": "shop",
                    "HOST": "db",
                    "PORT": "3307",
                    "OPTIONS": {"ssl": {"ca": "/ca.pem"}, "charset": "utf8mb4"},
                },
                "mysql+pymysql://db:3307/shop?ssl_ca=%2Fca.pem",
            ),
            ({"ENGINE": "django.db.backends.sqlite3", "NAME": "/shop.db"}, "sqlite:////shop.db"),
        ):
            with self.subTest(url):
                self.assertEqual(store_url(database).render_as_string(hide_password=False), url)
        for database, reason in (
            ({"ENGINE": "django.db.backends.oracle"}, "cannot store delayed messages"),
            (
                {"ENGINE": "django.db.backends.mysql", "NAME": "shop", "OPTIONS": {"conv": {}}},
                "'conv' of the database cannot be written",
            ),
        ):
            with self.subTest(reason), self.assertRaisesRegex(ImproperlyConfigured, reason):
                store_url(database)
