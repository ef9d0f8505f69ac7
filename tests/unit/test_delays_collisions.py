"""Destinations that get messages for others: what is said agrees with what a topic exchange does."""

from hypothesis import given
from hypothesis import strategies as st

from delaystore.cascades.binding import collisions, collisions_of
from delaystore.transports.rabbitmq.topology import NSERVICEBUS_V2, Binding, DestinationKind, Exchange, Routing, matches

DELIVERY = NSERVICEBUS_V2.delivery
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)


def loose(address: str, kind: DestinationKind = DestinationKind.EXCHANGE) -> Binding:
    """As NServiceBus binds."""
    return Binding(DELIVERY, address, kind, f"#.{address}")


def exact(address: str, routing: Routing = Routing.DIRECT) -> Binding:
    """As we bind."""
    return NSERVICEBUS_V2.destination_bindings(address, routing)[0]


def test_a_name_that_ends_another_gets_its_messages() -> None:
    (finding,) = collisions(NSERVICEBUS_V2, [loose("b"), loose("a.b"), loose("ab")])
    assert "'#.b'" in finding.subject
    assert "exchange 'b' also gets messages for 'a.b'" in finding.text


def test_exact_bindings_collide_with_nothing() -> None:
    assert collisions(NSERVICEBUS_V2, [exact("b"), exact("a.b"), exact("c.a.b")]) == []


def test_an_exact_binding_does_not_help_beside_a_loose_one() -> None:
    (finding,) = collisions(NSERVICEBUS_V2, [exact("b", Routing.CONVENTIONAL), loose("b"), exact("a.b")])
    assert "'#.b'" in finding.subject


def test_a_catch_all_gets_everything() -> None:
    audit = Binding(DELIVERY, "audit", DestinationKind.QUEUE, "#")
    (finding,) = collisions(NSERVICEBUS_V2, [audit, *(exact(f"q{number}") for number in range(8))])
    assert "'q0', 'q1', 'q2', 'q3', 'q4' and 3 more" in finding.text


def test_a_destination_with_two_addresses_takes_nothing_from_itself() -> None:
    both = [Binding(DELIVERY, "b", DestinationKind.QUEUE, key) for key in ("#.b", "#.a.b")]
    assert collisions(NSERVICEBUS_V2, both) == []


def test_several_destinations_of_one_address_are_meant_so() -> None:
    tasks = [Binding(DELIVERY, name, DestinationKind.EXCHANGE, "#.task") for name in ("one", "two")]
    assert collisions(NSERVICEBUS_V2, tasks) == []


def test_a_queue_bound_itself_and_by_its_exchange_gets_a_message_once() -> None:
    conventional = Binding("b", "b", DestinationKind.QUEUE)
    bindings = [exact("b"), loose("b"), conventional]
    assert collisions(NSERVICEBUS_V2, bindings, [Exchange("b", "fanout")]) == []
    assert collisions_of(NSERVICEBUS_V2, bindings, "b", [Exchange("b", "fanout")]) == []


def test_an_exchange_that_leads_to_another_queue_delivers_a_second_copy() -> None:
    bindings = [exact("b"), loose("b"), Binding("b", "c", DestinationKind.QUEUE)]
    (finding,) = collisions(NSERVICEBUS_V2, bindings, [Exchange("b", "fanout")])
    assert "arrives twice" in finding.text
    assert "'c'" in finding.text
    assert finding.subject == "address 'b'"
    assert collisions_of(NSERVICEBUS_V2, bindings, "b", [Exchange("b", "fanout")]) == [finding]


def test_other_exchanges_are_nobodys_business() -> None:
    elsewhere = Binding("amq.topic", "b", DestinationKind.QUEUE, "#.b")
    assert collisions(NSERVICEBUS_V2, [elsewhere, exact("a.b")]) == []


def test_for_one_destination_both_sides_are_told() -> None:
    bindings = [loose("b"), exact("a.b"), loose("c"), exact("x.c")]
    for destination in ("b", "a.b"):
        (finding,) = collisions_of(NSERVICEBUS_V2, bindings, destination)
        assert "'#.b'" in finding.subject
    assert collisions_of(NSERVICEBUS_V2, bindings, "nobody") == []


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=6, unique=True))
def test_a_binding_is_named_exactly_if_it_takes_what_is_for_another(drawn: list[tuple[str, bool]]) -> None:
    bindings = {exact(name) if exactly else loose(name, DestinationKind.QUEUE) for name, exactly in drawn}
    guilty = {
        binding.routing_key
        for binding in bindings
        for name, _ in drawn
        if name != binding.destination and matches(binding.routing_key, NSERVICEBUS_V2.key(5, name))
    }
    named = {finding.subject.split("'")[1] for finding in collisions(NSERVICEBUS_V2, bindings)}
    assert named == guilty
