"""Who is let in, and who may change what."""

import asyncio
import time
from collections import Counter
from datetime import timedelta

import httpx
import pytest
from fastapi import HTTPException as FastAPIException
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount

from delaystore.delivery import AsyncDelayedDelivery, DelayedDelivery
from delaystore.errors import ConfigurationError
from delaystore.operations import Operations
from delaystore.server.web import Role, User, app, users
from delaystore.server.web.application import CHANGES, LOOKS
from delaystore.server.web.http import HEADERS
from delaystore.server.web.users import Account, accounts_of, hashed, tokens_of
from delaystore.stores import InMemoryDelayedMessageStore
from tests.web.pages import TOKENS, USERS, Page, browser, post

PATHS = [path for path, _ in (*LOOKS, *CHANGES)]


@pytest.mark.parametrize(
    ("client", "host", "headers"),
    [
        (("192.0.2.7", 1), "127.0.0.1:8765", {}),
        (("127.0.0.1", 1), "rebound.example:8765", {}),
        (("127.0.0.1", 1), "localhost.example", {}),
        (("127.0.0.1", 1), "127.0.0.1:8765", {"X-Forwarded-For": "192.0.2.7"}),
        (("127.0.0.1", 1), "127.0.0.1:8765", {"Forwarded": "for=192.0.2.7"}),
        (("127.0.0.1", 1), "127.0.0.1:8765", {"Via": "1.1 proxy"}),
        (("127.0.0.1", 1), "127.0.0.1:8765", {"X-Real-IP": "192.0.2.7"}),
        (("127.0.0.1", 1), "127.0.0.1:8765", {"CF-Connecting-IP": "192.0.2.7"}),
    ],
)
def test_without_a_user_only_this_machine_is_let_in(
    delivery: DelayedDelivery, client: tuple[str, int], host: str, headers: dict[str, str]
) -> None:
    stranger = browser(app(delivery), client=client, host=host, headers=headers)
    for path in (*PATHS, "/api/v1/health", "/nothing"):
        answer = stranger.get(path)
        assert answer.status_code == 403, path
        assert "sales" not in answer.text or not path.startswith("/api")
    assert stranger.post("/message/cancel", data={"id": "1"}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "localhost"])
def test_this_machine_is_let_in_by_its_own_names(delivery: DelayedDelivery, host: str) -> None:
    assert browser(app(delivery), host=host).get("/").status_code == 200
    assert browser(app(delivery), host=host, client=("::ffff:127.0.0.1", 1)).get("/").status_code == 200


@pytest.mark.parametrize("host", ["[", "[::1", "a[b", "", "localhost:x@elsewhere.example"])
def test_a_host_that_is_none_is_refused(delivery: DelayedDelivery, host: str) -> None:
    stranger = browser(app(delivery))
    for path in ("/", "/api/v1/health"):
        assert stranger.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.long
def test_each_page_and_each_change_wants_a_password(delivery: DelayedDelivery) -> None:
    stranger = browser(app(delivery, users=USERS))
    for path in (*PATHS, "/api/v1/health", "/nothing"):
        for answer in (stranger.get(path), stranger.post(path), stranger.get(path, auth=("ada", "wrong"))):
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic ")
    assert stranger.get("/static/delaystore.css").status_code == 200


def test_users_come_from_the_environment(delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSTORE_WEB_USERS", USERS)
    page = app(delivery)
    assert browser(page).get("/").status_code == 401
    assert "ada" in browser(page, user="ada", client=("192.0.2.7", 1), host="delays.example").get("/").text


def test_a_password_may_be_given_as_a_hash_and_in_a_file(delivery: DelayedDelivery, tmp_path: object) -> None:
    file = tmp_path / "users"  # type: ignore[operator]
    file.write_text(f"ada:operate:{hashed('lovelace')}\ngrace:read:hopper\n")
    page = app(delivery, users=f"@{file}")
    for _ in range(2):  # the second time it is remembered
        assert browser(page, user="ada").get("/").status_code == 200
        assert browser(page).get("/", auth=("ada", "hopper")).status_code == 401
        assert browser(page, user="grace").get("/").status_code == 200


def test_an_accepted_password_is_remembered_for_a_while(
    delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    accepts = Account.accepts
    monkeypatch.setattr(Account, "accepts", lambda self, given: checked.append(given) or accepts(self, given))
    monkeypatch.setattr(users, "_REMEMBERED", 0.2)
    page = browser(app(delivery, users=f"ada:operate:{hashed('lovelace')}"), user="ada")
    assert [page.get("/changes").status_code for _ in range(2)] == [200, 200]
    assert checked == ["lovelace"]
    time.sleep(0.3)
    assert page.get("/changes").status_code == 200
    assert checked == ["lovelace", "lovelace"]


def test_calls_at_the_same_time_share_one_check_of_their_password(
    delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    accepts = Account.accepts
    monkeypatch.setattr(Account, "accepts", lambda self, given: checked.append(given) or accepts(self, given))
    page = browser(app(delivery, users=f"ada:operate:{hashed('lovelace')}"))

    async def at_once(password: str) -> list[int]:
        asked = [page.client.get("/api/v1/changes", auth=("ada", password)) for _ in range(20)]
        return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert asyncio.run(at_once("wrong")) == [401] * 20
    assert asyncio.run(at_once("lovelace")) == [200] * 20
    assert checked == ["wrong", "lovelace"]


@pytest.mark.parametrize("names", [1, 100])
def test_a_flood_of_wrong_logins_locks_out_no_user(delivery: DelayedDelivery, names: int) -> None:
    own = ["ada", "bob", "cyd"]
    page = browser(app(delivery, users=" ".join(f"{name}:read:{hashed(name)}" for name in own)))

    async def wrong(number: int) -> None:
        for guess in range(100):
            answer = await page.client.get("/changes", auth=(f"eve {number % names}", f"{number} {guess}"))
            assert answer.status_code in {401, 429}

    async def logged_in() -> list[int]:
        attack = [asyncio.ensure_future(wrong(number)) for number in range(100)]
        await asyncio.sleep(0.2)
        found = [(await page.client.get("/changes", auth=(name, name))).status_code for name in own]
        for each in attack:
            each.cancel()
        assert not [
            each for each in await asyncio.gather(*attack, return_exceptions=True) if isinstance(each, Exception)
        ]
        return found

    assert asyncio.run(logged_in()) == [200, 200, 200]


@pytest.mark.parametrize("passwords", [1, 2])
def test_in_a_flood_of_logins_no_answer_tells_which_names_exist(delivery: DelayedDelivery, passwords: int) -> None:
    page = browser(app(delivery, users=" ".join(f"{name}:read:{hashed(name)}" for name in ("ada", "bob", "cyd"))))

    async def answers(name: str) -> list[int]:
        asked = [page.client.get("/changes", auth=(name, f"wrong {number}")) for number in range(passwords)]
        return sorted(answer.status_code for answer in await asyncio.gather(*asked))

    async def found() -> list[list[int]]:
        flood = [asyncio.ensure_future(page.client.get("/changes", auth=(f"eve {n}", ""))) for n in range(30)]
        for _ in range(100):  # until all of the flood wait for a check, however fast the machine is
            await asyncio.sleep(0)
        try:
            return await asyncio.gather(*(answers(name) for name in ("ada", "bob", "zoe", "joe")))
        finally:
            await asyncio.gather(*flood)

    assert asyncio.run(found()) == [[401, 429][:passwords]] * 4


def test_beyond_a_number_of_pending_logins_all_are_refused(delivery: DelayedDelivery) -> None:
    """Each takes turns on the event loop, which would stand still."""
    page = browser(app(delivery, users=f"ada:read:{hashed('ada')}"))

    async def flood() -> Counter[int]:
        asked = [page.client.get("/changes", auth=(f"eve {number}", "")) for number in range(400)]
        return Counter(answer.status_code for answer in await asyncio.gather(*asked))

    found = asyncio.run(flood())
    assert found[401] + found[429] == 400
    assert found[401] <= 256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ada:operate", "entry 1 is not of the form NAME:ROLE:PASSWORD"),
        ("ada:operate:x grace:admin:secret", "entry 2 is not of the form"),
        ("ada:operate:x ada:read:secret", "entry 2 names 'ada' again"),
        ("ada:operate:scrypt$secret", "a broken hash"),
        ("@/nowhere", "cannot be read: No such file"),
    ],
)
def test_wrong_users_are_told_without_their_passwords(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="DELAYSTORE_WEB_USERS") as caught:
        accounts_of(text)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brief:read", "shorter than 16"),
        ("0123456789abcdef", "TOKEN:ROLE"),
        ("scrypt$0123456789abcdef$0123456789abcdef:read", "is a hash"),
        ("0123456789abcdef:read 0123456789abcdef:operate", "entry 2 repeats the token of another entry"),
    ],
)
def test_wrong_tokens_are_told_without_them(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        tokens_of(text)
    assert text.partition(":")[0] not in str(caught.value)


def test_who_may_look_changes_nothing(delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"x", delay=timedelta(hours=1))
    reader = browser(app(delivery, users=USERS), user="grace")
    page = reader.get("/message", params={"id": message_id})
    assert "Cancel" not in Page(page.text).text
    for path, _ in CHANGES:
        answer = reader.post(path, data={"id": message_id, "name": "billing"})
        assert answer.status_code == 403
        assert "need the role operate" in answer.text
    assert delivery.get(message_id) is not None
    assert not delivery.operations.changes()


def test_a_page_that_is_read_only_is_so_for_everybody(delivery: DelayedDelivery) -> None:
    operator = browser(app(delivery, users=USERS, read_only=True), user="ada")
    assert operator.post("/message/cancel", data={"id": "1"}).status_code == 403


def test_a_change_takes_the_token_of_this_browser_and_user(delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"x", delay=timedelta(hours=1))
    page = app(delivery, users=f"{USERS} joan:operate:clarke")
    ada, other = browser(page, user="ada"), browser(page)
    other.client.auth = httpx.BasicAuth("joan", "clarke")
    own = Page(ada.get("/message", params={"id": message_id}).text).csrf
    somebody_else_s = Page(other.get("/message", params={"id": message_id}).text).csrf
    for token in ({}, {"csrf": ""}, {"csrf": "x" * 43}, {"csrf": somebody_else_s}):
        answer = ada.post("/message/cancel", data={"id": message_id, **token})
        assert answer.status_code == 403
        assert "Nothing was changed" in answer.text
    stolen = browser(page, user="ada")  # the token without the cookie
    assert stolen.post("/message/cancel", data={"id": message_id, "csrf": own}).status_code == 403
    assert delivery.get(message_id) is not None
    assert ada.post("/message/cancel", data={"id": message_id, "csrf": own}, follow_redirects=False).status_code == 303
    assert delivery.get(message_id) is None
    (change,) = delivery.operations.changes()
    assert (change.by, change.action, change.count) == ("ada", "cancel", 1)


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Origin": "http://["},
     {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)  # fmt: skip
def test_another_site_s_page_changes_nothing_even_with_a_token(
    delivery: DelayedDelivery, headers: dict[str, str]
) -> None:
    message_id = delivery.send("billing", b"x", delay=timedelta(hours=1))
    ada = browser(app(delivery, users=USERS), user="ada")
    token = Page(ada.get("/message", params={"id": message_id}).text).csrf
    answer = ada.post("/message/cancel", data={"id": message_id, "csrf": token}, headers=headers)
    assert answer.status_code == 403
    assert delivery.get(message_id) is not None
    own = {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
    answer = ada.post("/message/cancel", data={"id": message_id, "csrf": token}, headers=own, follow_redirects=False)
    assert answer.status_code == 303


def test_behind_a_proxy_that_keeps_the_host_to_itself_it_is_told_what_to_set(delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"x", delay=timedelta(hours=1))
    ada = browser(app(delivery, users=USERS), user="ada")
    token = Page(ada.get("/message", params={"id": message_id}).text).csrf
    form = {"id": message_id, "csrf": token}
    asked = {"Origin": "https://delays.example", "Sec-Fetch-Site": "same-origin"}
    answer = ada.post("/message/cancel", data=form, headers=asked)
    assert answer.status_code == 403
    said = Page(answer.text).text
    assert "a page of https://delays.example asked for it, and this one is at 127.0.0.1:8765" in said
    assert "must pass on the header Host, or set X-Forwarded-Host" in said
    named = {**asked, "X-Forwarded-Host": "delays.example"}
    assert ada.post("/message/cancel", data=form, headers=named, follow_redirects=False).status_code == 303


def test_two_processes_with_one_secret_know_each_other_s_forms(delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"x", delay=timedelta(hours=1))
    first, second = (browser(app(delivery, secret="x" * 32)) for _ in range(2))
    token = Page(first.get("/message", params={"id": message_id}).text).csrf
    second.client.cookies = first.client.cookies
    assert second.post("/message/cancel", data={"id": message_id, "csrf": token}).status_code == 200
    assert delivery.get(message_id) is None


def test_an_empty_secret_is_none(delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSTORE_WEB_SECRET", "")
    first, second = (browser(app(delivery)) for _ in range(2))
    token = Page(first.get("/destinations").text).csrf
    second.client.cookies = first.client.cookies
    assert second.post("/destinations/pause", data={"name": "billing", "csrf": token}).status_code == 403


def test_the_host_s_own_login_says_who_asks(delivery: DelayedDelivery) -> None:
    async def whoever(request: Request) -> User | Response | None:
        match request.headers.get("x-user"):
            case None:
                return None
            case "guest":
                return RedirectResponse("/login")
            case "barred":
                raise HTTPException(403, "You are barred.")
            case name:
                return User(name, Role.OPERATE)

    page = app(delivery, authenticate=whoever, tokens=TOKENS)
    host = Starlette(routes=[Mount("/delays", page)])
    assert browser(host).get("/delays/").status_code == 401
    assert browser(host).get("/delays/", headers={"x-user": "guest"}, follow_redirects=False).status_code == 307
    barred = browser(host).get("/delays/", headers={"x-user": "barred"})
    assert barred.status_code == 403
    assert "You are barred." in barred.text
    joan = browser(host, headers={"x-user": "joan"})
    assert "joan" in joan.get("/delays/").text
    assert post(joan, "/delays/destinations/pause", "/delays/destinations", name="billing").status_code == 303
    assert delivery.operations.changes()[0].by == "joan"
    assert joan.get("/delays/api/v1/health").status_code == 401  # its login may be a cookie, which others' pages use
    bearer = {"Authorization": "Bearer 0123456789abcdef-read"}
    assert browser(host).get("/delays/api/v1/health", headers=bearer).status_code == 200


def test_every_answer_is_hardened(delivery: DelayedDelivery) -> None:
    here = browser(app(delivery))
    for path in ("/", "/nothing", "/static/delaystore.css", "/api/v1/health", "/message"):
        answer = here.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
        assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    style = next(each["href"] for each in Page(here.get("/").text).all("link") if each["rel"] == "stylesheet")
    assert "immutable" in here.get(style).headers["cache-control"]
    cookie = here.get("/").headers.get("set-cookie") or browser(app(delivery)).get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_a_fault_is_hardened_too(delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operations, "life", lambda *_: 1 / 0)
    answer = browser(app(delivery)).get("/message?id=1")
    assert answer.status_code == 500
    assert "Internal error in delaystore" in answer.text
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["cache-control"] == "no-store"


def test_a_refusal_of_the_host_may_have_any_detail(delivery: DelayedDelivery) -> None:
    def whoever(_request: Request) -> User:
        raise FastAPIException(401, {"reason": "Log in first."})

    answer = browser(app(delivery, authenticate=whoever)).get("/")
    assert answer.status_code == 401
    assert "Log in first." in answer.text


def test_pages_hold_no_script_and_no_style_of_their_own(delivery: DelayedDelivery) -> None:
    message_id = delivery.send("billing", b"{}", delay=timedelta(hours=1))
    here = browser(app(delivery, show_bodies=True))
    for path in ("/", "/messages", f"/message?id={message_id}", "/bulk", "/destinations", "/changes", "/nothing"):
        page = Page(here.get(path).text)
        assert all("src" in each for each in page.all("script"))
        assert not page.all("style")
        for tag, attributes in page.elements:
            assert "style" not in attributes, (path, tag)
            assert not [name for name in attributes if name.startswith("on")], (path, tag)


def test_what_an_event_loop_needs_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match="needs a DelayedDelivery, not AsyncDelayedDelivery"):
        app(AsyncDelayedDelivery("sales", InMemoryDelayedMessageStore()))  # type: ignore[arg-type]
