"""The fixtures of the pytest plugin, used as a user's tests use them."""

import subprocess
import sys
from importlib.metadata import distribution

import pytest

pytest_plugins = ["pytester"]

# by its module, once: the installed entry point may be an older one
LOADED = ("-p", "no:delaystore", "-p", "delaystore.testing.plugin", "-p", "no:cacheprovider", "-W", "error")


def passed(pytester: pytest.Pytester, *tests: str) -> None:
    pytester.makepyfile(*tests)
    outcomes = pytester.runpytest_subprocess(*LOADED).parseoutcomes()
    assert set(outcomes) == {"passed"}, outcomes


def test_the_fixtures_are_there(pytester: pytest.Pytester) -> None:
    passed(
        pytester,
        """
        from datetime import timedelta

        import pytest

        from delaystore import DelayedDelivery
        from delaystore.testing import TestDelivery  # which pytest is not to collect


        def remind(delivery):
            delivery.send("reminders", b"order 17", delay=timedelta(days=3))


        @pytest.mark.parametrize("name", ["delayed_delivery", "sql_delayed_delivery"])
        def test_three_days_later(name, request, clock):
            delivery = request.getfixturevalue(name)
            assert isinstance(delivery, DelayedDelivery)
            remind(delivery)
            delivery.assert_sent("reminders", delay=timedelta(days=3))
            clock.advance(days=3)
            assert [message.body for message in delivery.dispatch_due()] == [b"order 17"]


        def test_one_clock(delayed_delivery, sql_delayed_delivery, async_delayed_delivery, clock):
            assert delayed_delivery.clock is sql_delayed_delivery.clock is async_delayed_delivery.clock is clock


        def test_nothing_is_left_of_other_tests(delayed_delivery, sql_delayed_delivery):
            delayed_delivery.assert_not_sent()
            sql_delayed_delivery.assert_not_sent()
        """,
    )


def test_what_is_to_be_overridden(pytester: pytest.Pytester) -> None:
    passed(
        pytester,
        """
        import pytest
        from sqlalchemy import create_engine, inspect, text
        from sqlalchemy.orm import Session

        from delaystore import DelayedDeliverySettings
        from delaystore.testing import SettableClock


        @pytest.fixture
        def clock():
            return "of another library"


        @pytest.fixture
        def delayed_delivery_clock():
            return SettableClock()


        @pytest.fixture
        def delayed_delivery_endpoint():
            return "sales"


        @pytest.fixture
        def delayed_delivery_settings():
            return DelayedDeliverySettings(error_queue="sales.failed")


        @pytest.fixture(scope="module")
        def delayed_delivery_database(tmp_path_factory):
            engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('app')}/app.db")
            yield engine
            assert "sales_delayed_test_clock" in inspect(engine).get_table_names()
            engine.dispose()


        @pytest.fixture
        def session(delayed_delivery_database):
            with Session(delayed_delivery_database) as session:
                yield session


        def test_a_session_that_ends_late(session, sql_delayed_delivery):
            sql_delayed_delivery.send("billing", b"left behind", delay=60)
            sql_delayed_delivery.enlist(session).send("billing", b"left open", delay=60)


        def test_it(sql_delayed_delivery, delayed_delivery_database, delayed_delivery_clock):
            with Session(delayed_delivery_database) as session:
                sql_delayed_delivery.assert_not_sent()
                session.execute(text("create table orders (number int)"))
                sql_delayed_delivery.enlist(session).send("billing", b"17", delay=60)
                sql_delayed_delivery.assert_not_sent()
                session.commit()
            sql_delayed_delivery.assert_sent("billing", b"17", delay=60)
            assert sql_delayed_delivery.engine is delayed_delivery_database
            delayed_delivery_clock.advance(60)
            sql_delayed_delivery.dispatch_due()
            assert "sales.failed" in sql_delayed_delivery.transport.declared
        """,
    )


def test_a_clock_of_another_kind_is_told_in_a_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest


        @pytest.fixture
        def clock():
            return "of another library"


        def test_it(delayed_delivery): ...
        """
    )
    result = pytester.runpytest_subprocess(*LOADED)
    result.stdout.fnmatch_lines(["*the fixture clock is a str, and no delaystore.testing.SettableClock;*"])


def test_a_failed_assertion_shows_the_report_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(delayed_delivery):
            delayed_delivery.send("billing", b"pay me", delay=60)
            delayed_delivery.assert_sent("shipping")
        """
    )
    result = pytester.runpytest_subprocess(*LOADED)
    result.stdout.fnmatch_lines(["E *no such message was sent: to 'shipping'", "E *to 'billing', body b'pay me'*"])
    result.stdout.no_fnmatch_line("*_delivery.py*")


def test_loading_the_plugin_imports_next_to_nothing() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import delaystore.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = ("", ".errors", ".registry", ".testing", ".testing.plugin")
    assert done.stdout.split() == [f"delaystore{each}" for each in ours]


def test_pytest_finds_it_by_itself() -> None:
    points = {point.name: point.value for point in distribution("delaystore").entry_points.select(group="pytest11")}
    assert points == {"delaystore": "delaystore.testing.plugin"}
