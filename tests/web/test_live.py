"""The first screen while it is open: read once for all, drawn once for all, and soon right again after an outage."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from delaystore.delivery import DelayedDelivery
from delaystore.server.web import app
from delaystore.server.web.pages import Pages
from delaystore.server.web.store_calls import Shared
from tests.web.pages import HERE


def test_what_many_look_at_is_drawn_once(delivery: DelayedDelivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaystore.server.web.screens.overview.STREAM_SECONDS", 0.5)
    drawn, fragment = [], Pages.fragment

    def counted(self: Pages, request: Any, template: str, **content: Any) -> str:
        drawn.append(template)
        return fragment(self, request, template, **content)

    monkeypatch.setattr(Pages, "fragment", counted)

    async def streams() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app(delivery), client=HERE)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
            return await asyncio.gather(*(client.get("/events") for _ in range(20)))

    answers = asyncio.run(streams())
    assert len({answer.text for answer in answers}) == 1
    assert "event: overview" in answers[0].text
    assert drawn == ["_overview.html"]


def test_an_overview_is_read_again_soon_however_long_that_takes() -> None:
    asked = []

    def ask() -> int:
        time.sleep(0.3)
        asked.append(1)
        return len(asked)

    shared = Shared(ask, fresh=0.05, oldest=0.2)

    async def until_second() -> float:
        began = time.monotonic()
        while await shared(5) < 2:
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    assert asyncio.run(until_second()) < 5  # 20 times as long would be 6 s


def test_what_could_not_be_told_is_asked_again_soon() -> None:
    answers = iter(["broken", "whole"])

    def ask() -> str:
        time.sleep(0.5)  # what takes long is rested on for 20 times as long
        return next(answers)

    shared = Shared(ask, fresh=0.05, is_whole=lambda answer: answer == "whole")

    async def until_whole() -> float:
        began = time.monotonic()
        while await shared(5) != "whole":
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    assert asyncio.run(until_whole()) < 8
