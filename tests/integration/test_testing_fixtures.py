"""The pytest fixture of a SQL store, with a database of the user's own."""

import pytest

pytest_plugins = ["pytester"]

# by its module, once: the installed entry point may be an older one
LOADED = ("-p", "no:delaystore", "-p", "delaystore.testing.plugin", "-p", "no:cacheprovider", "-W", "error")
PROGRAM = """
    import pytest
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    from delaystore.testing import plugin

    plugin.LOCK_WAIT = 0.2
    left_open = []


    @pytest.fixture(scope="module")
    def delayed_delivery_database():
        engine = create_engine({url!r})
        yield engine
        engine.dispose()


    def test_one(sql_delayed_delivery):
        left_open.append(Session(sql_delayed_delivery.engine))
        sql_delayed_delivery.enlist(left_open[0]).send("billing", b"", delay=60)


    def test_two(sql_delayed_delivery):
        assert False


    def test_three(sql_delayed_delivery):
        sql_delayed_delivery.assert_not_sent()


    def teardown_function(function):
        if function.__name__ == "test_two":
            left_open[0].close()
"""


@pytest.mark.long_runs("mariadb_url")
@pytest.mark.parametrize("database", ["postgresql_url", "mariadb_url"])
def test_a_transaction_left_open_is_not_waited_for_without_end(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, database: str
) -> None:
    """As a Session of a test that has failed, which pytest keeps with the traceback."""
    pytester.makepyfile(PROGRAM.format(url=request.getfixturevalue(database)))
    result = pytester.runpytest_subprocess(*LOADED, timeout=60)
    assert result.parseoutcomes() == {"passed": 2, "errors": 1}
    result.stdout.fnmatch_lines(["* at setup of test_two *", "test_delayed_test_clock is in use by a transaction*"])
    result.stdout.no_fnmatch_line("*During handling*")
