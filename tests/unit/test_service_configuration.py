"""The configuration of a service: what it can be, each mistake in one line, what is shown, what changes."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from delaystore.errors import ConfigurationError
from delaystore.server.configuration.shown import as_document, as_toml, changes, with_fixed_of
from delaystore.server.configuration.tree import ServiceConfiguration, configuration_in

SALES = """
[endpoint.sales]
store = "postgresql+psycopg://app:geheim@localhost/app"
transport = "amqp://guest:geheim@localhost"
"""


def read(folder: Path, text: str) -> ServiceConfiguration:
    file = folder / "delaystore.toml"
    file.write_text(text)
    return configuration_in(file)


def test_two_tables_are_enough(tmp_path: Path) -> None:
    found = read(tmp_path, SALES)
    assert found.drain == timedelta(seconds=30)
    assert str(found.web.listen) == "127.0.0.1:8765"
    assert found.metrics.listen is None
    assert found.endpoint["sales"].store.value == "postgresql+psycopg://app:geheim@localhost/app"
    assert found.endpoint["sales"].settings().batch_size == 1000


def test_each_key_of_the_dispatcher_is_a_setting(tmp_path: Path) -> None:
    keys = """
[endpoint.sales.dispatcher]
name = "one"
batch_size = 7
batch_bytes = 8
number_of_retries = 2
retry_span = "1h"
exactly_once = true
poll_interval = 0.25
maximum_sleep = "20s"
handover_horizon = "1m"
on_expired = "drop"
added_headers = ["sent-at", "due-time"]
dispatch_timeout = "6s"
store_timeout = 31
"""
    settings = read(tmp_path, SALES + keys).endpoint["sales"].settings()
    assert (settings.batch_size, settings.batch_bytes, settings.number_of_retries) == (7, 8, 2)
    assert settings.retry_span == timedelta(hours=1)
    assert settings.transaction_mode == "transaction_scope"
    assert settings.poll_interval == timedelta(milliseconds=250)
    assert settings.handover_horizon == timedelta(minutes=1)
    assert settings.on_expired == "drop"
    assert settings.added_headers == ("due-time", "sent-at")
    assert settings.store_timeout == timedelta(seconds=31)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "delaystore.toml: endpoint is missing; write a table [endpoint.NAME], with store and transport"),
        ("drain = ", "is no TOML: Invalid value (at end of document)"),
        ('a = 1\nb = "\n', "is no TOML: Illegal character '\\n' (at line 2, column 6)"),
        (f"{SALES}{SALES}", "(at line 6, column 16)"),
        (f"drein = 3{SALES}", "delaystore.toml: drein is unknown; the nearest is drain"),
        (
            f"batch_size = 3{SALES}",
            "the nearest is batch_size, in [endpoint.NAME.dispatcher] or in [endpoint.NAME.ingress.NAME]",
        ),
        (f"{SALES}drain = 3", "[endpoint.sales] drain is unknown; the nearest is drain, outside of any table"),
        (f"{SALES}trasport = 3", "[endpoint.sales] trasport is unknown; the nearest is transport"),
        (f"{SALES}[endpoint.sales.dispacher]", "[endpoint.sales] dispacher is unknown; the nearest is dispatcher"),
        (f"{SALES}[wbe]", "delaystore.toml: wbe is unknown; the nearest is web"),
        (f"{SALES}[web]\nxyzzy = 1", "[web] xyzzy is unknown; known here: enabled, listen, users, "),
        ('[endpoint.sales]\nstore = "x"', "[endpoint.sales] transport is missing"),
        ('endpoint = "sales"', 'endpoint must be a table, not "sales"'),
        ("[endpoint]\nsales = 3", "[endpoint] sales must be a table, as in [endpoint.NAME], not 3"),
        (f"web = true{SALES}", "web must be a table, not true"),
        (f"drain = true{SALES}", "drain must be a duration above 0, as in 30s, not true"),
        (f'drain = "soon"{SALES}', "drain 'soon' is no duration; write 90s"),
        (f"drain = 0{SALES}", "drain must be a duration above 0, not 0"),
        (f"drain = -1{SALES}", "drain '-1' is negative"),
        (f"drain = 2026-01-01{SALES}", "drain must be a duration above 0, as in 30s, not 2026-01-01"),
        (f'log_level = "loud"{SALES}', 'log_level must be one of error, warning, info, debug, not "loud"'),
        (f'{SALES}audit = "some"', '[endpoint.sales] audit must be one of operators, all, not "some"'),
        (f'{SALES}retention = "1h"', "[endpoint.sales] retention must be at least 1 day"),
        (f'{SALES}history = "30s"', "[endpoint.sales] history must be at least 1m, or 0, not 30s"),
        (f'{SALES}history = "a month"', "[endpoint.sales] history 'a month' is no duration; write 90s"),
        (f"{SALES}history = false", "[endpoint.sales] history must be a duration, as in 30s, not false"),
        (f"{SALES}error_queue = 3", "[endpoint.sales] error_queue must be a text, not 3"),
        (f'{SALES}error_queue = ""', '[endpoint.sales] error_queue must be a text, not ""'),
        (f'{SALES}error_queue = "/queues/"', "[endpoint.sales] error_queue cannot be '/queues/'"),
        (f"{SALES}schema = []", "[endpoint.sales] schema must be a text, not an array"),
        (f"{SALES}[web]\nread_only = 1", "[web] read_only must be true or false, not 1"),
        (f'{SALES}[web]\nlisten = "8765"', '[web] listen must be HOST:PORT, as in 127.0.0.1:9464, not "8765"'),
        (f'{SALES}[web]\nlisten = "a:70000"', "[web] listen must be HOST:PORT"),
        (
            f'{SALES}[web]\nlisten = "0.0.0.0:1"',
            "[web] listen 0.0.0.0:1 accepts requests from other machines, and no user",
        ),
        (f'{SALES}[web]\nusers = "ada:boss:geheim"', "[web] users entry 1 is not of the form NAME:ROLE:PASSWORD"),
        (f'{SALES}[web]\ntokens = "geheim:read"', "[web] tokens the token of entry 1 is shorter than 16 characters"),
        (f'{SALES}[web]\nusers = "@/nowhere/users"', "[web] users @/nowhere/users: the file cannot be read: No such"),
        (f"{SALES}[metrics]\ndestinations = 5", '[metrics] destinations needs listen = "HOST:PORT"; set both'),
        (f"{SALES}[endpoint.sales.dispatcher]\nbatch_size = 0", "batch_size must be a whole number from 1, not 0"),
        (f"{SALES}[endpoint.sales.dispatcher]\nbatch_size = 1.0", "batch_size must be a whole number, not 1.0"),
        (f"{SALES}[endpoint.sales.dispatcher]\nbatch_size = 1e6", "batch_size must be a whole number, not"),
        (f"{SALES}[endpoint.sales.dispatcher]\nbatch_size = 200000", "batch_size must be at most 100,000, not 200000"),
        (
            f"{SALES}[endpoint.sales.dispatcher]\nnumber_of_retries = 2000000",
            "number_of_retries must be at most 1,000,000, not 2000000",
        ),
        (f'{SALES}[endpoint.sales.dispatcher]\nname = "\\n"', "name must be a text"),
        (f'{SALES}[endpoint.sales.dispatcher]\nname = "a\\nb"', "[endpoint.sales.dispatcher] name cannot be 'a\\nb'"),
        (f'{SALES}[endpoint.sales.dispatcher]\nexactly_once = "yes"', "exactly_once must be true or false, not"),
        (f'{SALES}management = "amqp://h"', "[endpoint.sales] management must begin with http:// or https://"),
        (
            '[endpoint.sales]\nstore = "memory:"\ntransport = "x:"',
            "[endpoint.sales] store is in memory, so its messages would be lost",
        ),
        (
            '[endpoint.sales]\nstore = "geheim"\ntransport = "x:"',
            "store must begin with a scheme, as in sqlite:///app.db",
        ),
        (
            '[endpoint.sales]\nstore = "${NIX}"\ntransport = "x:"',
            "store names the environment variable 'NIX', which is not",
        ),
        ('[endpoint.sales]\nstore = "@/nowhere"\ntransport = "x:"', "store @/nowhere: the file cannot be read"),
        ('[endpoint.sales]\nstore = 3\ntransport = "x:"', "[endpoint.sales] store must be a URL"),
        (SALES.replace("sales", '"a/b"'), "endpoint cannot be called 'a/b' here: the page has no address for it"),
        (SALES.replace("sales", "livez"), "endpoint cannot be called 'livez' here"),
        (
            f"{SALES}[endpoint.sales.ingress.o]\nprefetch = 0",
            "[endpoint.sales.ingress.o] prefetch must be a whole number",
        ),
        (
            f"{SALES.replace('amqp://', '')}[endpoint.sales.control]\nenabled = true",
            "[endpoint.sales] control goes with a transport that begins with amqp:// or amqps://; correct",
        ),
        (f"{SALES}[endpoint.sales.ingress.o]\nprefetch = 70000", "[endpoint.sales.ingress.o] prefetch must be a whole"),
        (
            f"{SALES}[endpoint.sales.ingress.o]\nprefech = 7",
            "[endpoint.sales.ingress.o] prefech is unknown; the nearest is",
        ),
        (
            f'{SALES}[endpoint.sales.ingress.o]\ndelay_headers = "x-dely"',
            "[endpoint.sales.ingress.o] delay_headers 'x-dely' is no delay",
        ),
        (
            f"{SALES}[endpoint.sales.ingress.o]\ndelay_headers = [3]",
            "ingress.o] delay_headers must be an array of texts, or a text",
        ),
        (
            f'{SALES}[endpoint.sales.ingress.o]\ndestination = "header:"',
            "[endpoint.sales.ingress.o] destination: a header",
        ),
        (
            f'{SALES}[endpoint.sales.ingress.o]\non_duplicate = "x"',
            "on_duplicate must be one of both, keep, replace, not",
        ),
        (f'{SALES}[endpoint.sales.ingress.o]\nbroker = "http://x"', "broker must begin with amqp:// or amqps://"),
        (f"{SALES}[endpoint.sales.ingress.{'o' * 250}]", "[endpoint.sales] ingress 'ooo"),
        (
            f'{SALES}[endpoint.sales.ingress.o]\ndestination = "o.ingress"',
            "leads back to the ingress queue: messages would loop",
        ),
        (f'{SALES}[endpoint.sales.ingress.o]\ndestination = "/queues/o.ingress"', "leads back to the ingress queue"),
        (f'{SALES}[endpoint.sales.ingress.o]\ndestination = "/exchanges/o"', "leads back to the ingress queue"),
        (f'{SALES}[endpoint.sales.ingress.o]\ndestination = "/exchanges/o/key"', "leads back to the ingress queue"),
        (f"drain = {'1' * 5000}{SALES}", "a number of thousands of digits"),
        (f'{SALES}cascade = "no such"', "[endpoint.sales] cascade 'no such': "),
        (
            f'{SALES}management = "http://u:geheim@[::1"',
            "[endpoint.sales] management cannot be read; check host and port",
        ),
        (
            f'{SALES}management = "http://u:geheim@h:x"',
            "[endpoint.sales] management cannot be read; check host and port",
        ),
        (SALES.replace("sales", '".."'), "endpoint cannot be called '..' here"),
        (f'{SALES}[web]\nlisten = "a\\u0000:80"', "[web] listen must be HOST:PORT"),
        (
            f'{SALES}[endpoint.sales.ingress.o]\nqueue = "{"q" * 300}"\ndestination = "header"',
            "[endpoint.sales] ingress 'o' reads a queue whose name has more than 255 bytes",
        ),
        (
            f'{SALES}control = {{enabled = true, queue = "{"q" * 300}"}}',
            "control reads a queue whose name has more than",
        ),
        (
            f'{SALES}[endpoint.sales.ingress.o]\nrejected_queue = "o.ingress"',
            "ingress 'o': rejected_queue is the ingress queue itself, so messages would loop",
        ),
        (
            f'{SALES}error_queue = "o.ingress"\n[endpoint.sales.ingress.o]',
            "endpoint 'sales' has the error queue 'o.ingress', and 'sales' reads the queue 'o.ingress' as ingress 'o': "
            "name another one",
        ),
        (
            f'{SALES}[endpoint.sales.ingress.o]\n{SALES.replace("sales", "stock")}error_queue = "o.ingress"',
            "endpoint 'stock' has the error queue 'o.ingress', and 'sales' reads the queue 'o.ingress' as",
        ),
        (f'{SALES}[web]\nlisten = "[::1:8998"', "[web] listen must be HOST:PORT"),
        (f'{SALES}[web]\nlisten = "::1:8998"', "[web] listen must be HOST:PORT"),
        (f'{SALES}[web]\nlisten = "[localhost]:8998"', "[web] listen must be HOST:PORT"),
        (
            f'{SALES}[metrics]\nlisten = "localhost:8765"',
            "metrics listens to localhost:8765, and web to 127.0.0.1:8765: give each a port of its own",
        ),
        (
            f'{SALES}[web]\nenabled = false\n[metrics]\nlisten = "[::]:1"\n[health]\nlisten = "127.0.0.1:1"',
            "health listens to 127.0.0.1:1, and metrics to [::]:1: give each a port of its own",
        ),
        (
            f'{SALES}[endpoint.sales.ingress.o]\n[endpoint.sales.ingress.p]\nqueue = "o.ingress"\n'
            'destination = "header"',
            "endpoint 'sales' reads the queue 'o.ingress' as ingress 'p', and 'sales' reads the queue 'o.ingress' as "
            "ingress 'o' too: change one, or leave it out",
        ),
        (
            f"{SALES}[endpoint.sales.ingress.o]\n{SALES.replace('sales', 'stock')}[endpoint.stock.ingress.o]",
            "endpoint 'stock' reads the queue 'o.ingress' as ingress 'o', and 'sales' reads",
        ),
        (
            f'{SALES}control = {{enabled = true, queue = "q"}}\n{SALES.replace("sales", "stock")}'
            'control = {enabled = true, queue = "q"}',
            "endpoint 'stock' reads the queue 'q' as its control queue, and 'sales' reads the queue 'q' as its",
        ),
        (
            f'{SALES}table = "t"\n{SALES.replace("sales", "stock")}table = "t"',
            "endpoint 'stock' keeps its messages in the table 't', and 'sales' in 't', too: give one another table",
        ),
        (
            f'{SALES}{SALES.replace("sales", "stock").replace("psycopg", "asyncpg")}table = "sales_delayed"',
            "'stock' keeps its messages in the table 'sales_delayed', and 'sales' in 'sales_delayed', too: give",
        ),
        *(
            (
                f'[endpoint.sales]\nstore = "{one}"\ntransport = "x:"\n'
                f'[endpoint.SALES]\nstore = "{other}"\ntransport = "x:"',
                f"'SALES' keeps its messages in the table 'SALES_delayed', and 'sales' in 'sales_delayed', and "
                f"{database} may take both for one: give one another table",
            )
            for one, other, database in (
                ("sqlite:///a.db", "sqlite:///./a.db", "sqlite"),
                ("mariadb://h/d", "mysql+pymysql://ann@h:3306/d", "mysql"),
            )
        ),
        (
            SALES.replace("postgresql+psycopg://app:geheim@localhost/app", "host=db password=geheim:"),
            "[endpoint.sales] store must begin with a scheme, as in sqlite:///app.db",
        ),
        (
            f"{SALES.replace('amqp', 'sqlite')}[endpoint.sales.ingress.o]",
            "ingress 'o' reads from RabbitMQ; set",
        ),
    ],
)
def test_each_mistake_is_one_line_that_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    line = str(caught.value)
    assert said in line
    assert "delaystore.toml" in line
    assert "geheim" not in line


def test_a_file_that_is_missing_or_no_text_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        configuration_in(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(ConfigurationError, match="is no UTF-8 text, at byte 2"):
        configuration_in(tmp_path / "latin.toml")


def test_several_may_listen_to_any_port_or_to_one_port_of_several_hosts(tmp_path: Path) -> None:
    free = '[web]\nlisten = "127.0.0.1:0"\n[metrics]\nlisten = "127.0.0.1:0"\n[health]\nlisten = "127.0.0.1:0"\n'
    assert read(tmp_path, SALES + free).health.listen
    hosts = '[web]\nlisten = "127.0.0.1:1"\n[metrics]\nlisten = "127.0.0.2:1"\n[health]\nlisten = "[::1]:1"\n'
    assert str(read(tmp_path, SALES + hosts).health.listen) == "[::1]:1"


def test_names_of_tables_differ_in_capitals_in_postgresql_and_from_store_to_store(tmp_path: Path) -> None:
    assert len(read(tmp_path, SALES + SALES.replace("sales", "SALES")).endpoint) == 2
    a_store = '[endpoint.{}]\nstore = "{}"\ntransport = "x:"\n'
    for one, other in (("sqlite:///a", "sqlite:///b"), ("own://h/a", "own://h/b"), ("mysql://h:x/a", "mysql://h/a")):
        assert read(tmp_path, a_store.format("sales", one) + a_store.format("SALES", other)).endpoint


def test_one_queue_name_on_two_brokers_is_two_queues(tmp_path: Path) -> None:
    other = '[endpoint.sales.ingress.p]\nqueue = "o.ingress"\ndestination = "header"\nbroker = "amqp://elsewhere"'
    assert len(read(tmp_path, f"{SALES}[endpoint.sales.ingress.o]\n{other}").endpoint["sales"].ingress) == 2


@pytest.mark.parametrize("what", ["the file", "a secret"])
def test_a_pipe_is_no_file_that_could_be_read_again(tmp_path: Path, what: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="pipe is no regular file, and could not be read again"):
        if what == "the file":
            configuration_in(pipe)
        else:
            read(tmp_path, f'[endpoint.sales]\nstore = "@{pipe}"\ntransport = "x:"\n')


def test_secrets_come_from_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "geheim")
    monkeypatch.setenv("SECRETS", str(tmp_path))
    (tmp_path / "broker").write_text("amqp://guest:geheim@localhost\n")
    (tmp_path / "users").write_text("ada:operate:geheim\nbob:read:geheim\n")
    found = read(
        tmp_path,
        '[web]\nusers = "@${SECRETS}/users"\n[endpoint.sales]\n'
        'store = "postgresql+psycopg://app:${DB_PASSWORD}@db/app"\ntransport = "@${SECRETS}/broker"\n',
    )
    assert found.endpoint["sales"].store.value == "postgresql+psycopg://app:geheim@db/app"
    assert found.endpoint["sales"].transport.value == "amqp://guest:geheim@localhost"
    assert found.web.is_protected
    shown = as_toml(found)
    assert "geheim" not in shown + repr(found) + str(as_document(found))
    assert "app:${DB_PASSWORD}@db" in shown
    assert 'transport = "@${SECRETS}/broker"' in shown


def test_what_is_shown_is_a_file_again(tmp_path: Path) -> None:
    plain = SALES.replace(":geheim", "") + '[endpoint."My.Sales"]\nstore = "sqlite:///a"\ntransport = "sqlite:///a"\n'
    found = read(tmp_path, f"drain = 1.5{plain}")
    shown = as_toml(found)
    assert 'drain = "1.5s"' in shown
    assert "# schema =" in shown
    assert read(tmp_path, shown) == found
    assert as_document(found)["endpoint"]["My.Sales"]["dispatcher"]["number_of_retries"] == 5


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("amqp://guest:geheim@h1,h2/v", "amqp://guest:***@h1,h2/v"),
        ("amqp://guest:ge@heim@h/v", "amqp://guest:***@h/v"),
        ("amqp://guest@shop:geheim@h/v", "amqp://guest@shop:***@h/v"),
        ("amqp://guest:${PASSWORD}@heim@h/v", "amqp://guest:***@h/v"),
        ("postgresql://app:ge/he?im@h/app?sslmode=require", "postgresql://app:***@h/app?sslmode=require"),
        ("postgresql://h/app?password=geheim&x=1", "postgresql://h/app?password=***&x=1"),
        ("postgresql://h/app?a=b;password=geheim", "postgresql://h/app?a=***"),
        ("postgresql://h/app?options=-c%20x%3Dgeheim", "postgresql://h/app?options=***"),
        ("mssql://h/app?odbc_connect=PWD%3Dgeheim", "mssql://h/app?odbc_connect=***"),
        ("postgresql://h/app?geheim", "postgresql://h/app?***"),
        ("postgresql:host=db password=geheim", "***"),
        ("postgresql://host=db password=geheim", "***"),
        ("postgresql:///host=db password=geheim", "***"),
        ("postgresql://a/b:geheim@h/x", "***"),
        ("postgresql://app:geheim", "***"),
        ("postgresql://app:geheim/x", "***"),
        ("postgresql://h/x#geheim", "***"),
        ("amqp://u:geheim@[::1:5672/", "***"),
        (
            "amqp://u:${PASSWORD}@h1:5672,[::1]:5673/%2f?heartbeat=5",
            "amqp://u:${PASSWORD}@h1:5672,[::1]:5673/%2f?heartbeat=5",
        ),
        ("sqlite:////var/lib/app.db", "sqlite:////var/lib/app.db"),
    ],
)
def test_no_password_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, shown: str) -> None:
    monkeypatch.setenv("PASSWORD", "ge")
    found = read(tmp_path, f'[endpoint.sales]\nstore = "{given}"\ntransport = "{given}"\n')
    assert as_document(found)["endpoint"]["sales"]["store"] == shown


def test_changes_are_named_and_what_takes_a_restart_stays(tmp_path: Path) -> None:
    before = read(tmp_path, SALES)
    text = f"""
drain = "1m"
[web]
listen = "127.0.0.1:1"
read_only = true
[metrics]
listen = "127.0.0.1:2"
{SALES.replace("geheim", "neu")}
[endpoint.sales.dispatcher]
batch_size = 5
[endpoint.other]
store = "sqlite:///a"
transport = "sqlite:///a"
"""
    after = read(tmp_path, text)
    found = list(changes(before, after))
    assert [str(each) for each in found] == [
        "drain",
        "[web] listen",
        "[web] read_only",
        "[metrics] listen",
        "[endpoint.sales] store",
        "[endpoint.sales] transport",
        "[endpoint.sales.dispatcher] batch_size",
        "[endpoint.other] added",
    ]
    assert [str(each) for each in found if each.fixed] == ["[web] listen", "[metrics] listen"]
    kept = with_fixed_of(before, after)
    assert kept.web.listen == before.web.listen
    assert kept.web.read_only
    assert kept.endpoint == after.endpoint
    assert [str(each) for each in changes(after, before)][-1] == "[endpoint.other] removed"
    assert not list(changes(before, read(tmp_path, SALES)))
