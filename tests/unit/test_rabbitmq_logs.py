import logging
import threading

import pytest

from delaystore.transports.rabbitmq.pika_errors import quiet_pika

PIKA = logging.getLogger("pika.channel")


def test_pika_is_quiet_about_our_connections_only(caplog: pytest.LogCaptureFixture) -> None:
    with quiet_pika():
        PIKA.error("ours")
        beside = threading.Thread(target=PIKA.error, args=("theirs, in another thread",))
        beside.start()
        beside.join()
    PIKA.error("theirs")
    assert [record.getMessage() for record in caplog.records] == ["theirs, in another thread", "theirs"]


def test_whoever_debugs_pika_sees_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pika")
    with quiet_pika():
        PIKA.error("ours")
    assert [record.getMessage() for record in caplog.records] == ["ours"]
