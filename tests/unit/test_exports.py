"""Cascades as Terraform, as definitions, and as diagrams; a broker judges the definitions elsewhere."""

import json
import re
from typing import Any

import pytest

from delaystore.cascades.exports import definitions, mermaid, terraform
from delaystore.cascades.policies import complete_layout, policy_for
from delaystore.errors import ConfigurationError
from delaystore.transports.rabbitmq.topology import CascadeTopology, Layout, custom, topology_named

ODD = 'été "x" <b> ${a} %{b} #1 [y]; end'
NAMES = (
    "nservicebus-v2",
    "nservicebus-v1",
    "celery",
    "celery:classic:emea",
    "skipping",
    "skipping:tiny:3",
    "custom:mine:1",
    "custom:9:20:ms",
    f"custom:{ODD}:5",
)
TOPOLOGIES = {name: topology_named(name) for name in NAMES} | {
    "without addresses": custom("gist", skipping=True, addresses=False)
}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
REFERENCE = re.compile(r"\$\{(\w+)\.([\w-]+)\.name\}")
NODE = re.compile(r'    (\w+)(?:\["(.*)"\]|\(\["(.*)"\]\))')
EDGE = re.compile(r'    (\w+) (?:-->|-\.->|-- "[^"]+" -->|-\. "[^"]+" \.->) (\w+)')

every_cascade = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)


def exported(topology: CascadeTopology, vhost: str = "/") -> Any:
    """The Terraform document, as a program would read it."""
    policy = policy_for(topology)
    return json.loads(json.dumps(terraform(complete_layout(topology), vhost, [policy] if policy else [])))


def resolved(text: str, resources: dict[str, dict[str, Any]]) -> str:
    """What Terraform makes of a text: references followed, doubled signs single."""
    if found := REFERENCE.fullmatch(text):
        return resolved(resources[found[1]][found[2]]["name"], resources)
    assert not re.search(r"(?<![$%])[$%]\{", text), f"{text} would be computed"
    return text.replace("$${", "${").replace("%%{", "%{")


def contents(layout: Layout) -> dict[str, set[str]]:
    """What a layout holds, in a comparable form."""
    return {
        "exchanges": {repr((one.name, one.type, sorted(one.arguments.items()))) for one in layout.exchanges},
        "queues": {
            repr((one.name, sorted({"x-queue-type": one.type, **one.arguments}.items()))) for one in layout.queues
        },
        "bindings": {repr((one.source, one.destination, str(one.kind), one.routing_key)) for one in layout.bindings},
    }


@every_cascade
def test_terraform_holds_the_whole_layout_and_nothing_else(topology: CascadeTopology) -> None:
    resources = exported(topology)["resource"]

    def text(value: str) -> str:
        return resolved(value, resources)

    held: dict[str, set[str]] = {"exchanges": set(), "queues": set(), "bindings": set()}
    for one in resources["rabbitmq_exchange"].values():
        settings = one["settings"]
        arguments = sorted((key, text(value)) for key, value in settings.get("arguments", {}).items())
        held["exchanges"].add(repr((text(one["name"]), settings["type"], arguments)))
        assert settings["durable"]
    for one in resources["rabbitmq_queue"].values():
        arguments = sorted(json.loads(text(one["settings"]["arguments_json"])).items())
        held["queues"].add(repr((text(one["name"]), arguments)))
        assert one["settings"]["durable"]
    for one in resources["rabbitmq_binding"].values():
        ends = text(one["source"]), text(one["destination"])
        held["bindings"].add(repr((*ends, one["destination_type"], text(one["routing_key"]))))
    layout = complete_layout(topology)
    assert held == contents(layout)
    assert len(resources["rabbitmq_binding"]) == len(layout.bindings)


@every_cascade
def test_terraform_refuses_to_delete_what_messages_wait_in(topology: CascadeTopology) -> None:
    resources = exported(topology)["resource"]
    for one in (*resources["rabbitmq_queue"].values(), *resources["rabbitmq_exchange"].values()):
        assert one["lifecycle"] == {"prevent_destroy": True}


@every_cascade
def test_terraform_takes_each_name_of_a_resource(topology: CascadeTopology) -> None:
    for resources in exported(topology)["resource"].values():
        assert all(IDENTIFIER.fullmatch(label) for label in resources)


@every_cascade
def test_terraform_makes_bindings_after_what_they_bind(topology: CascadeTopology) -> None:
    for binding in exported(topology)["resource"]["rabbitmq_binding"].values():
        assert REFERENCE.fullmatch(binding["source"])
        assert REFERENCE.fullmatch(binding["destination"])


def test_terraform_sets_the_policy_of_a_shared_cascade_after_its_exchange() -> None:
    document = exported(TOPOLOGIES["nservicebus-v2"], "sales")
    (policy,) = document["resource"]["rabbitmq_policy"].values()
    alternate = policy["policy"]["definition"]["alternate-exchange"]
    (needed,) = policy["depends_on"]
    kind, label = needed.split(".")
    assert document["resource"][kind][label]["name"] == alternate
    assert policy["vhost"] == "sales"


def test_terraform_parts_names_that_look_the_same_without_odd_characters() -> None:
    both = custom("a b", levels=1).layout() + custom("a?b", levels=1).layout()
    assert len(terraform(both)["resource"]["rabbitmq_queue"]) == len(both.queues)


@pytest.mark.parametrize("prefix", ["a@b", "a/b"])
def test_terraform_is_refused_for_names_that_its_provider_would_take_apart(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot manage"):
        terraform(custom(prefix, levels=1).layout())


def test_definitions_name_the_virtual_host_of_everything_and_create_none() -> None:
    topology = TOPOLOGIES["nservicebus-v2"]
    policy = policy_for(topology)
    assert policy is not None
    document = definitions(complete_layout(topology), "sales", [policy])
    assert "vhosts" not in document
    assert {entry["vhost"] for entries in document.values() for entry in entries} == {"sales"}


@pytest.mark.parametrize("full", [False, True])
@every_cascade
def test_a_diagram_draws_each_node_that_its_lines_join(topology: CascadeTopology, full: bool) -> None:
    first, *lines = mermaid(topology, full=full).splitlines()
    assert first == "flowchart TD"
    nodes = [found[1] for line in lines if (found := NODE.fullmatch(line))]
    edges = [found.groups() for line in lines if (found := EDGE.fullmatch(line))]
    assert len(nodes) + len(edges) == len(lines)
    assert len(set(nodes)) == len(nodes)
    assert {end for edge in edges for end in edge} == set(nodes)
    assert all(start != end for start, end in edges), "what is left out leads to itself unseen"


def test_a_diagram_leaves_the_middle_levels_out_unless_told() -> None:
    short, whole = (mermaid(TOPOLOGIES["nservicebus-v2"], full=full) for full in (False, True))
    assert "levels 25 to 2" in short
    assert "nsb.v2.delay-level-13" not in short
    assert "levels" not in whole
    assert all(f"nsb.v2.delay-level-{level:02}" in whole for level in range(28))


def test_a_diagram_draws_what_a_policy_adds() -> None:
    assert "nowhere" not in mermaid(TOPOLOGIES["nservicebus-v2"])
    assert 'xEnd1 -. "no destination bound" .-> xEnd2' in mermaid(TOPOLOGIES["nservicebus-v2"], undeliverable="nowhere")


def test_a_diagram_spells_out_what_would_end_a_label() -> None:
    drawn = mermaid(TOPOLOGIES[f"custom:{ODD}:5"])
    assert "été #34;x#34; #60;b#62;" in drawn
