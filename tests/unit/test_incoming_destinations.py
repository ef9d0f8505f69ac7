"""Which destinations a publisher may name, and what becomes of CC on the way there."""

from datetime import UTC, datetime
from typing import Any

import pytest

from delaystore.errors import ConfigurationError
from delaystore.ingress.reading.destinations import parse_destination
from delaystore.ingress.reading.forms.naming import FORMS
from delaystore.ingress.reading.incoming import RejectedMessageError, SagaCleared
from delaystore.ingress.reading.reader import IncomingReader, ReadingRules
from delaystore.message import DelayedMessage
from delaystore.server.configuration.ingress import IngressConfiguration
from delaystore.transports.rabbitmq.properties import check_message
from tests.incoming import array, incoming_message, text_value

NOW = datetime(2027, 1, 31, 9, tzinfo=UTC)
FUTURE = "2027-02-01 09:00:00:000000 Z"
PAST = "2020-01-01 00:00:00:000000 Z"
EXPIRE, ROUTE_TO = "NServiceBus.Timeout.Expire", "NServiceBus.Timeout.RouteExpiredTimeoutTo"
CLEAR = {"NServiceBus.ClearTimeouts": "True", "NServiceBus.SagaId": "0f5c7f4e-5f7b-4d67-9a3c-2a1b0c9d8e7f"}
OURS = (
    "E.ingress.rejected",
    "other.ingress",
    "other.ingress.expired",
    "Other.Timeouts",
    "sales.control",
    "sales.control.rejected",
    "/queues/sales.control",
    "/exchanges/sales.control/x",
    "/exchanges/amq.default/sales.control",
    "error",
    "failed",
    "/exchanges/dead/x",
)
LEADS_BACK = (
    "E.ingress",
    "/queues/E.ingress",
    "/exchanges/amq.default/E.ingress",
    "E.ingress.expired",
    "/exchanges/E.ingress.expired/x",
    "/exchanges/E/key",
    "/exchanges/%45/key",
    "/exchanges/E",
)


def rules(destination: str = "/exchanges/OUT", queue: str = "E.ingress", **others: Any) -> ReadingRules:
    rule = parse_destination(destination, "--destination")
    return ReadingRules(ingress_queue=queue, exchange="E", destination=rule, check=check_message, **others)


def read(rules: ReadingRules, headers: Any, **properties: Any) -> DelayedMessage:
    message = IncomingReader(rules).read(incoming_message(headers, **properties), NOW)
    assert isinstance(message, DelayedMessage)
    return message


def named(to: str, **others: Any) -> str:
    """Where a message goes whose header names `to`."""
    return read(rules("header", **others), {"delaystore.destination": to}).destination


def test_a_timeout_is_read_where_it_is_expected_and_rejected_elsewhere() -> None:
    timeout = {EXPIRE: FUTURE, ROUTE_TO: "payments"}
    off = r"the delay format nservicebus is not enabled; name it in delay_headers \(--delay-headers\)"
    with pytest.raises(RejectedMessageError, match=off):
        read(rules(), timeout)
    assert read(rules(), {EXPIRE: PAST, ROUTE_TO: "payments"}).destination == "/exchanges/OUT/key"
    assert read(rules(), {"x-delay": 5, **timeout}).destination == "/exchanges/OUT/key"
    assert read(rules(forms=FORMS), timeout).destination == "payments"
    for queue in ("Sales.Timeouts", "Sales.Timeouts.ingress"):
        assert read(rules(queue=queue), timeout).destination == "payments"


def test_a_saga_is_cleared_only_where_timeouts_are_expected() -> None:
    assert read(rules(), CLEAR).destination == "/exchanges/OUT/key"
    found = IncomingReader(rules(queue="Sales.Timeouts")).read(incoming_message(CLEAR), NOW)
    assert isinstance(found, SagaCleared)


@pytest.mark.parametrize("to", LEADS_BACK)
def test_what_leads_back_is_never_allowed(to: str) -> None:
    for patterns in (None, ("*",), (to,)):
        with pytest.raises(RejectedMessageError, match="leads back to the ingress: it would come back for ever"):
            named(to, allow_destination=patterns)


@pytest.mark.parametrize("to", OURS)
def test_a_queue_of_ours_is_allowed_only_by_its_full_name(to: str) -> None:
    own = frozenset({"/queues/failed", "/exchanges/dead"})
    for patterns in (None, ("*",), ("sales.*", "E*", "/exchanges/*")):
        with pytest.raises(RejectedMessageError, match="is a queue or an exchange of delaystore's own; if publishers"):
            named(to, own=own, allow_destination=patterns)
    assert named(to, own=own, allow_destination=(to,)) == to


@pytest.mark.parametrize("header", ["route", "reply_to", "reply header"])
def test_each_way_in_which_a_timeout_names_its_queue_is_checked(header: str) -> None:
    headers, properties = {EXPIRE: FUTURE}, {}
    if header == "route":
        headers[ROUTE_TO] = "sales.control"
    elif header == "reply_to":
        properties["reply_to"] = "sales.control"
    else:
        headers["NServiceBus.ReplyToAddress"] = "sales.control"
    with pytest.raises(RejectedMessageError, match="delaystore's own"):
        read(rules(queue="Sales.Timeouts"), headers, **properties)


@pytest.mark.parametrize(
    ("to", "allowed"),
    [
        ("billing", True),
        ("/queues/billing", True),
        ("billing.eu", True),
        ("billing.", True),
        ("payments", False),
        ("/queues/payments", False),
        ("Billing", False),
        ("/exchanges/shop/a", True),
        ("/exchanges/shop/a%2Fb", True),
        ("/exchanges/shop", False),
        ("/exchanges/shops/a", False),
        ("/exchanges/billing/x", False),
        ("/queues/%2Fexchanges%2Fshop%2Fa", False),
        ("a b", True),
        ("sales.eu", True),
        ("/exchanges/gr%C3%B6%C3%9Fe/s", True),
        ("/exchanges/größe/s", True),
        ("orders[1]", True),
        ("orders1", False),
        ("lists[1].eu", True),
        ("lists1.eu", False),
        ("tür", True),
        ("tor", True),
        ("tr", False),
        ("teer", False),
        ("shared/a", True),
        ("/exchanges/shared/a", False),
        ("/exchanges/x/y.end", False),
        ("y.end", True),
    ],
)
def test_destinations_are_limited_by_patterns(to: str, allowed: bool) -> None:
    patterns = (
        *("/queues/billing", "billing.*", "/exchanges/shop/*", "/queues/a%20b"),
        *("/queues/sales*", "/exchanges/größe/*", "orders[1]", "lists[1]*", "t?r", "shared/*", "*.end"),
    )
    if allowed:
        assert named(to, allow_destination=patterns) == to
    else:
        with pytest.raises(RejectedMessageError, match="is none that publishers may name; add it to allow_destination"):
            named(to, allow_destination=patterns)


def test_without_patterns_all_else_is_allowed() -> None:
    for to in ("billing", "/exchanges/amq.topic/k", "ingress", "control", "errors"):
        assert named(to) == to


def test_what_the_operator_has_set_is_not_checked() -> None:
    assert read(rules("sales.control", allow_destination=("billing",)), {}).destination == "sales.control"


def test_a_pattern_that_is_no_address_is_told() -> None:
    with pytest.raises(ConfigurationError, match="allow_destination: destination '/nowhere/x' is no address"):
        IngressConfiguration(allow_destination=("/nowhere/x",))
    with pytest.raises(ConfigurationError, match=r"allow_destination: destination '/q\*' is no address"):
        IngressConfiguration(allow_destination=("/q*",))


def test_an_empty_list_does_not_allow_every_destination() -> None:
    for make in (lambda: IngressConfiguration(allow_destination=()), lambda: rules("header", allow_destination=())):
        with pytest.raises(ConfigurationError, match=r'^allow_destination is empty; name a destination, "\*" for all'):
            make()


@pytest.mark.parametrize(
    ("destination", "headers"),
    [
        ("billing", {}),
        ("/exchanges/OUT/fixed", {}),
        ("header", {"delaystore.destination": "billing"}),
        ("/exchanges/OUT", {EXPIRE: FUTURE, ROUTE_TO: "billing"}),
    ],
)
def test_cc_is_renamed_where_the_publisher_does_not_choose_the_route(destination: str, headers: Any) -> None:
    copies = {"CC": array(text_value("payments")), "BCC": array(text_value("x"))}
    message = read(rules(destination, forms=FORMS), headers | copies)
    assert {"CC", "BCC"}.isdisjoint(message.headers)
    assert (message.headers["delaystore.cc"], message.headers["delaystore.bcc"]) == (["payments"], ["x"])


def test_cc_stays_behind_the_exchange_that_the_publisher_chose() -> None:
    assert read(rules(), {"CC": array(text_value("a"))}).headers == {"CC": ["a"]}


def test_a_queue_without_an_exchange_needs_a_destination() -> None:
    with pytest.raises(ConfigurationError, match=r"^destination is missing: where do messages of a queue"):
        IngressConfiguration(queue="incoming")
    for given in ({"queue": "Sales.Timeouts"}, {"queue": "incoming", "delay_headers": ("nservicebus",)}):
        assert IngressConfiguration(**given).destination_rule("x").named_by_publishers
