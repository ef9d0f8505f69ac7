"""`delaystore cascade export`, with a broker that imports what it writes."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest

from delaystore.cascades.delivery_limits import limit_policy
from delaystore.cascades.management import Management
from delaystore.cascades.policies import complete_layout, policy_for
from delaystore.transports.rabbitmq.parameters import broker_from_url
from delaystore.transports.rabbitmq.topology import Layout, Queue, topology_named
from tests.integration.cli import CommandLine
from tests.servers import RabbitMQ, RabbitMQVhosts
from tests.servers.server import Server

CASCADES = (
    "nservicebus-v2",
    "nservicebus-v1",
    "celery",
    "celery:classic:emea",
    "skipping",
    'custom:été "x" <b> ${a} %{b} #1 [y]; end:5',
)


@pytest.fixture
def broker(rabbitmq: RabbitMQVhosts, start_server: Callable[[Callable[[], Server]], Server]) -> RabbitMQ:
    """A broker with rabbitmqctl: the session's, unless that is somebody else's."""
    if isinstance(rabbitmq, RabbitMQ):
        return rabbitmq
    return cast("RabbitMQ", start_server(lambda: RabbitMQ(management=True)))


@pytest.fixture
def vhost_url(broker: RabbitMQ) -> Iterator[str]:
    url = broker.create_vhost()
    yield url
    broker.delete_vhost(url)


def read_back(management: Management, wanted: Layout) -> Layout:
    """The broker's own exchanges, queues and bindings left out, in the order of `wanted`."""
    exchanges, queues, bindings = dict(management.exchanges()), management.queues(), set(management.bindings())
    assert {name for name in exchanges if name and not name.startswith("amq.")} == {
        one.name for one in wanted.exchanges
    }
    assert set(queues) == {one.name for one in wanted.queues}
    assert bindings == set(wanted.bindings)
    assert all(one.durable for one in (*exchanges.values(), *queues.values()))
    return Layout(
        tuple(type(one)(one.name, exchanges[one.name].type, exchanges[one.name].arguments) for one in wanted.exchanges),
        tuple(Queue(one.name, _as_given(one, queues[one.name].arguments)) for one in wanted.queues),
        wanted.bindings,
    )


def _as_given(wanted: Queue, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """RabbitMQ 4 adds the type to the arguments of a queue that was declared without it."""
    return {key: value for key, value in arguments.items() if key in wanted.arguments or value != "classic"}


@pytest.mark.long_runs(after=2)
@pytest.mark.parametrize("cascade", CASCADES)
def test_a_broker_has_the_whole_cascade_from_the_definitions(
    cascade: str, run: CommandLine, broker: RabbitMQ, vhost_url: str
) -> None:
    path = broker.directory / "definitions.json"  # rabbitmqctl runs as another user, who cannot read our own
    vhost = broker.vhost_name(vhost_url)
    written = run(
        "cascade", "export", "--format", "definitions", "--cascade", cascade, "--vhost", vhost, "--output", str(path)
    )
    assert (written.code, written.out) == (0, "")
    broker.ctl("import_definitions", str(path))
    topology = topology_named(cascade)
    wanted = complete_layout(topology)
    with closing(Management(broker.management_url or "", broker_from_url(vhost_url))) as management:
        assert read_back(management, wanted) == wanted
        wanted_policies = filter(None, (policy_for(topology), limit_policy(topology)))
        assert {one.name: one for one in management.policies()} == {one.name: one for one in wanted_policies}


@pytest.mark.parametrize("cascade", ["nservicebus-v1", "nservicebus-v2", "celery:classic", "skipping"])
def test_terraform_reads_back_the_arguments_that_it_wrote(
    cascade: str, run: CommandLine, broker: RabbitMQ, vhost_url: str
) -> None:
    """As the provider does it: PUT, then GET; where the arguments differ as JSON, its next plan replaces the queue."""
    written = run("cascade", "export", "--format", "terraform", "--cascade", cascade)
    vhost = quote(broker.vhost_name(vhost_url), safe="")
    resources = written.document["resource"]
    for kind, path in (("rabbitmq_exchange", "exchanges"), ("rabbitmq_queue", "queues")):
        for resource in resources[kind].values():
            settings = dict(resource["settings"])
            arguments = json.loads(settings.pop("arguments_json", "null")) or settings.pop("arguments", {})
            where = f"/api/{path}/{vhost}/{quote(resource['name'], safe='')}"
            broker.request("PUT", where, {**settings, "arguments": arguments})
            read = cast("dict[str, Any]", broker.request("GET", where))
            assert read["arguments"] == arguments
            assert {name: read[name] for name in settings} == settings


@pytest.mark.parametrize("form", ["terraform", "definitions"])
def test_documents_go_to_standard_output(run: CommandLine, form: str) -> None:
    written = run("cascade", "export", "--format", form, "--cascade", "custom:mine:3")
    assert written.code == 0
    assert "mine.delay-level-02" in json.dumps(written.document)


def test_a_diagram_goes_to_standard_output(run: CommandLine) -> None:
    written = run("cascade", "export", "--format", "mermaid", "--cascade", "nservicebus-v2", "--full")
    assert written.code == 0
    assert written.out.startswith("flowchart TD\n")
    assert "nsb.v2.delay-level-13" in written.out
    assert "nsb.v2.delay-delivery.undeliverable" in written.out


@pytest.mark.parametrize("form", ["terraform", "definitions", "mermaid"])
def test_as_one_json_document_it_holds_the_text_or_names_the_file(run: CommandLine, tmp_path: Path, form: str) -> None:
    arguments = ("cascade", "export", "--format", form, "--cascade", "custom:mine:3")
    text = run(*arguments).out
    described = {"format": form, "cascade": "custom:mine:3"}
    assert run(*arguments, "--json").document == {**described, "content": text, "file": None}
    file = tmp_path / "file"
    assert run(*arguments, "--json", "--output", str(file)).document == {
        **described,
        "content": None,
        "file": str(file),
    }
    assert file.read_text(encoding="utf-8") == text


def test_mistakes_are_told_in_a_line(run: CommandLine, tmp_path: Path) -> None:
    assert "no cascade is called 'nsb'" in run.refused("cascade", "export", "--format", "mermaid", "--cascade", "nsb")
    assert "pdf" in run.refused("cascade", "export", "--format", "pdf")
    missing = str(tmp_path / "missing" / "file")
    assert os.strerror(2) in run.refused("cascade", "export", "--format", "mermaid", "--output", missing)
    assert "cannot manage" in run.refused("cascade", "export", "--format", "terraform", "--vhost", "a@b")
