"""Pages as tests read them: an application on a store in memory, and the forms in its answers."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import httpx
from starlette.types import ASGIApp
from typing_extensions import override

from delaystore.delivery import DelayedDelivery
from delaystore.dispatcher import Dispatcher
from delaystore.message import FailedAttempt
from delaystore.settings import DelayedDeliverySettings
from delaystore.stores import InMemoryDelayedMessageStore
from delaystore.stores.history import StoreWithHistory
from delaystore.stores.operable import OperableTransaction
from delaystore.stores.records import FailedDelivery
from delaystore.transports import InMemoryTransport

HERE = ("127.0.0.1", 50_000)
USERS = "ada:operate:lovelace grace:read:hopper"
TOKENS = "0123456789abcdef-operate:operate:robot 0123456789abcdef-read:read"


def new_delivery() -> DelayedDelivery:
    """Of the endpoint `sales`, in memory; nothing is dispatched."""
    delivery = DelayedDelivery("sales", InMemoryDelayedMessageStore(), InMemoryTransport())
    delivery.prepare()
    return delivery


def live(delivery: DelayedDelivery) -> str:
    """Keep a history: `unpaid` was cancelled, and a message with an id of delaystore's, which is returned, delivered.

    That one was rescheduled by grace, and failed once before.
    """
    store = delivery.operable_store()
    assert isinstance(store, StoreWithHistory)
    store.keep_history(timedelta(days=30))
    operations = delivery.operations.acting_as("grace")
    delivery.send("billing", b"x", delay=timedelta(hours=1), message_id="unpaid", key="invoice 8")
    operations.cancel_one("unpaid")
    message_id = delivery.send("shipping", b"pay me", delay=timedelta(hours=1), key="invoice 7")
    operations.reschedule_one(message_id, delay=0)
    with store.transaction() as transaction:
        assert isinstance(transaction, OperableTransaction)
        (claimed,) = transaction.fetch_due(store.now(), 1)
        attempt = FailedAttempt(at=store.now(), kind="Refused", reason="<b>queue is full</b>")
        transaction.count_failures([FailedDelivery(message=claimed, next_attempt=store.now(), attempt=attempt)])
    dispatcher = Dispatcher(
        store, InMemoryTransport(auto_declare=True), DelayedDeliverySettings(automatic_setup=False), endpoint="sales"
    )
    dispatcher.dispatch_due()
    assert delivery.get(message_id) is None
    return message_id


class Browser:
    """What asks an application, and keeps cookies."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The whole answer."""
        return asyncio.run(self.client.request(method, path, **{"follow_redirects": True, **more}))

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


def browser(
    app: ASGIApp,
    *,
    user: str | None = None,
    client: tuple[str, int] = HERE,
    host: str = "127.0.0.1:8765",
    headers: Mapping[str, str] | None = None,
) -> Browser:
    """A browser at that address of its own, asking for `host`; `user`: of USERS."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=client)
    auth = None if user is None else (user, {"ada": "lovelace", "grace": "hopper"}[user])
    return Browser(httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers, auth=auth))


class Page(HTMLParser):
    """The elements of a page: names and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    @override
    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of all elements of that name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def csrf(self) -> str:
        """The token of its forms."""
        return next(each["value"] for each in self.all("input") if each.get("name") == "csrf")


def post(client: Browser, path: str, page: str = "/destinations", **fields: Any) -> httpx.Response:
    """Send a form as a browser does, with the token that `page` has; it follows no redirect."""
    token = Page(client.get(page).text).csrf
    return client.post(path, data={"csrf": token, **fields}, follow_redirects=False)
