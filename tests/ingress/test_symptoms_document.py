"""docs/troubleshooting/symptoms.md: with a message for each symptom, its commands print what it says."""

from itertools import pairwise
from pathlib import Path

import pytest

from delaystore.cascades import BrokerClient
from tests.dispatching import wait_until
from tests.documents import ROOT, RUN, blocks_of, is_as_shown, printed, script
from tests.ingress.ground import DESTINATION, EXCHANGE, Ground, await_settled, endpoint, running
from tests.integration.sql_stores import message, opened
from tests.integration.test_documents import shell
from tests.integration.test_pages import with_real_addresses
from tests.servers import RabbitMQVhosts

PAGE = "docs/troubleshooting/symptoms.md"


def await_counts(url: str, management: str, *queues: str) -> None:
    """Wait until the management API, which counts every few seconds, knows how many messages the queues hold."""
    with BrokerClient(url, management) as client:
        api = client.management
        assert api is not None
        wait_until(lambda: None not in [api.queues()[queue].messages for queue in queues])


@pytest.mark.long
def test_the_checks_print_what_they_say(
    ground: Ground, rabbitmq: RabbitMQVhosts, postgresql_url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with endpoint(postgresql_url) as delivery, running(delivery, ground.url) as ingress:
        ground.publish(b"bad", delay="soon", message_id="invoice-9")
        await_settled(ingress, 1)
    ground.channel.queue_bind(DESTINATION, EXCHANGE, "#")
    text = with_real_addresses((ROOT / PAGE).read_text(), request)
    blocks = blocks_of(text)
    fails = "delaystore setup --queue billing\ndelaystore send bilng lost --delay 0\ndelaystore dispatch --once\n"
    done = shell(blocks[0].text + fails, tmp_path)
    assert done.returncode == 0, done.stderr
    with opened(postgresql_url) as store:
        store.store(overdue := message(store.now(), -600, "order-17"))
    await_counts(
        ground.url, rabbitmq.management_url or "", "orders.ingress", "orders.ingress.expired", "orders.ingress.rejected"
    )
    code, outputs = printed(script(blocks), tmp_path)
    last = max(outputs)
    assert code == 0, f"{PAGE}:{blocks[last].line}: {outputs[last]}"
    for number, (block, following) in enumerate(pairwise(blocks)):
        if following.language == "text" and block.language in RUN:
            shown = following.text.replace("2026-11-29 00:00Z", f"{overdue.due_time:%Y-%m-%d} 00:00Z")
            assert is_as_shown(shown, outputs[number]), f"{PAGE}:{following.line}: {outputs[number]}"
