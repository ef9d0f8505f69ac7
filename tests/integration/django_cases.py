"""What holds in a Django project on each database; test_django.py runs it by Django's own test runner."""

import threading
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client, SimpleTestCase, TestCase, TransactionTestCase, override_settings

from delaystore import DelayedDelivery, DelayedMessage, SqlDelayedMessageStore
from delaystore.errors import DuplicateMessageError, StoreSetupError
from delaystore.integrations.django import delayed
from delaystore.integrations.django._delivery import store_engine, store_url
from delaystore.integrations.django.apps import check_settings
from delaystore.stores.abc import ManagementOutcome
from delaystore.transports.memory import InMemoryTransport

HOUR = 3600


class Declined(Exception):
    """The business says no."""


def waiting() -> list[str]:
    """The ids of what waits, as somebody else sees it."""
    with delayed.reading() as store:
        return sorted(message.message_id for message in store.list().messages)


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
        with self.assertRaisesRegex(CommandError, "1 message waits, and would be lost"):
            call_command("migrate", "delaystore", "zero", verbosity=0)
        self.assertEqual(waiting(), ["kept"])
        delayed.cancel("kept")
        call_command("migrate", "delaystore", "zero", verbosity=0)
        call_command("migrate", "delaystore", verbosity=0)
        self.assertEqual(waiting(), [])


class Pages(TestCase):
    """The admin's list."""

    def setUp(self) -> None:
        self.client = Client()
        self.user = User.objects.create_user("operator", is_staff=True)
        self.client.force_login(self.user)
        self.allow("view")

    def allow(self, *actions: str) -> None:
        names = [f"{action}_waitingmessage" for action in actions]
        self.user.user_permissions.add(*Permission.objects.filter(codename__in=names))

    def status(self, path: str, **data: str) -> int:
        return self.client.post(f"/admin/delaystore/waitingmessage/{path}", data).status_code

    def test_it_lists_what_waits(self) -> None:
        for number in range(101):
            delayed.send("even" if number % 2 == 0 else "odd", b"body", delay=HOUR + number, message_id=f"m/{number}")
        page = self.client.get("/admin/delaystore/waitingmessage/")
        self.assertContains(page, "101 waiting in all")
        self.assertNotContains(page, "m/100<")
        rest = self.client.get(f"/admin/delaystore/waitingmessage/?{page.context['next']}")
        self.assertEqual([each.message_id for _, each in rest.context["messages_waiting"]], ["m/100"])
        even = self.client.get("/admin/delaystore/waitingmessage/", {"destination": "odd"})
        self.assertEqual(len(even.context["messages_waiting"]), 50)

    def test_it_refuses_what_is_no_page(self) -> None:
        page = self.client.get("/admin/delaystore/waitingmessage/", {"after": "nonsense"})
        self.assertContains(page, "this is no page")

    def test_it_shows_a_message_and_escapes_it(self) -> None:
        delayed.send("queue", b"<script>", delay=HOUR, message_id="a/b", headers={"kind": "<b>"})
        page = self.client.get("/admin/delaystore/waitingmessage/a_2Fb/change/")
        self.assertContains(page, "&lt;script&gt;")
        self.assertContains(page, "&lt;b&gt;")
        self.assertNotContains(page, "Cancel this message")

    def test_what_does_not_wait_is_not_found(self) -> None:
        self.assertEqual(self.client.get("/admin/delaystore/waitingmessage/gone/change/").status_code, 404)

    def test_it_changes_nothing_without_the_permission(self) -> None:
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        self.assertEqual(self.status("one/cancel/"), 403)
        self.assertEqual(self.status("one/reschedule/", at="2099-01-01 00:00"), 403)
        self.user.user_permissions.clear()
        self.assertEqual(self.client.get("/admin/delaystore/waitingmessage/").status_code, 403)
        self.assertIsNotNone(delayed.get("one"))

    def test_it_cancels(self) -> None:
        self.allow("delete")
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        self.assertEqual(self.client.get("/admin/delaystore/waitingmessage/one/cancel/").status_code, 405)
        self.assertEqual(self.status("one/cancel/"), 302)
        self.assertIsNone(delayed.get("one"))
        page = self.client.post("/admin/delaystore/waitingmessage/one/cancel/", follow=True)
        self.assertContains(page, "The message one waits no longer")

    def test_it_reschedules(self) -> None:
        self.allow("change")
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        self.assertEqual(self.status("one/reschedule/", at="nonsense"), 200)
        self.assertEqual(self.status("one/reschedule/", at="2099-01-01 00:00"), 302)
        self.assertEqual(delayed.get("one").due_time.year, 2099)

    def test_nothing_can_be_added(self) -> None:
        self.assertEqual(self.client.get("/admin/delaystore/waitingmessage/add/").status_code, 404)

    def test_a_time_out_of_range_is_told_beside_its_field(self) -> None:
        self.allow("change")
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
            for when in ("0001-01-01 00:00", "9999-12-31 23:59"):
                with self.subTest(zone=zone, when=when), override_settings(TIME_ZONE=zone):
                    page = self.client.post("/admin/delaystore/waitingmessage/one/reschedule/", {"at": when})
                    self.assertContains(page, "out of range")

    def test_an_id_that_no_message_can_have_is_not_found(self) -> None:
        self.allow("change", "delete")
        for message_id in ("x" * 300, "a_00b"):
            self.assertEqual(self.client.get(f"/admin/delaystore/waitingmessage/{message_id}/change/").status_code, 404)
        self.assertEqual(self.status(f"{'x' * 300}/cancel/"), 404)
        self.assertEqual(self.status(f"{'x' * 300}/reschedule/", at="2099-01-01 00:00"), 404)

    def test_times_are_local_also_without_use_tz(self) -> None:
        self.allow("change")
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        for use_tz in (True, False):
            with self.subTest(use_tz=use_tz), override_settings(USE_TZ=use_tz, TIME_ZONE="Asia/Tokyo"):
                self.assertEqual(self.status("one/reschedule/", at="2099-01-01 12:00"), 302)
                self.assertEqual(delayed.get("one").due_time, datetime(2099, 1, 1, 3, tzinfo=UTC))
                page = self.client.get("/admin/delaystore/waitingmessage/one/change/")
                self.assertContains(page, "2099-01-01 12:00:00", 3)  # due time, next attempt, form
                for since, found in (("2099-01-01 11:59", 1), ("2099-01-01 12:01", 0)):
                    listed = self.client.get("/admin/delaystore/waitingmessage/", {"since": since})
                    self.assertEqual(len(listed.context["messages_waiting"]), found)
                    self.assertContains(listed, "2099-01-01 12:00:00", found)

    def test_what_another_site_posts_is_refused(self) -> None:
        self.allow("delete")
        delayed.send("queue", b"", delay=HOUR, message_id="one")
        hostile = Client(enforce_csrf_checks=True)
        hostile.force_login(self.user)
        self.assertEqual(hostile.post("/admin/delaystore/waitingmessage/one/cancel/").status_code, 403)
        self.assertIsNotNone(delayed.get("one"))


class Outages(Emptied):
    """What the store says is told by a page."""

    def test_all_pages_tell_it(self) -> None:
        client, pages = Client(), "/admin/delaystore/waitingmessage/"
        client.force_login(User.objects.create_superuser("operator"))
        with override_settings(DELAYSTORE={"ENDPOINT": "without tables"}):
            for answer in (
                client.get(f"{pages}one/change/", follow=True),
                client.post(f"{pages}one/cancel/", follow=True),
                client.post(f"{pages}one/reschedule/", {"at": "2099-01-01 00:00"}, follow=True),
            ):
                self.assertContains(answer, "tables are missing", 2)  # as a message, and in place of the list


class Settings(SimpleTestCase):
    """Mistakes in the settings are told in one line."""

    def test_mistakes(self) -> None:
        for wrong, reason in (
            (None, "set DELAYSTORE"),
            ({}, "set DELAYSTORE"),
            ({"ENDPOINT": "shop", "ENDPIONT": 1}, "DELAYSTORE has no 'ENDPIONT'; it takes DATABASE, ENDPOINT"),
            ({"ENDPOINT": "shop", "DATABASE": "other"}, "'other', which DATABASES does not have"),
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
            ({"ENGINE": "django.db.backends.oracle"}, "holds no delayed messages"),
            (
                {"ENGINE": "django.db.backends.mysql", "NAME": "shop", "OPTIONS": {"conv": {}}},
                "'conv' of the database cannot be written",
            ),
        ):
            with self.subTest(reason), self.assertRaisesRegex(ImproperlyConfigured, reason):
                store_url(database)
