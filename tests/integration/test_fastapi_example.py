"""The FastAPI example, by its real framework and server."""

import asyncio
import socket
from importlib import reload
from pathlib import Path

import httpx
import pytest
import uvicorn

import examples.fastapi_app as example
from delaystore import SqlDelayedMessageStore
from delaystore.settings import TransactionMode


def waiting(file: Path) -> int:
    store = SqlDelayedMessageStore(f"sqlite:///{file}")
    store.initialize("sales", TransactionMode.RECEIVE_ONLY)
    try:
        return store.count()
    finally:
        store.close()


def test_an_order_and_its_reminder_are_kept_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
    monkeypatch.setenv("BROKER", "memory://")
    app = reload(example).app

    async def program() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning"))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            port = listening.getsockname()[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                assert (await client.get("/health")).json() == {"healthy": True, "problems": []}
                assert (await client.post("/orders/17")).status_code == 201
                assert (await client.post("/orders/17")).status_code == 409
                await client.post("/orders/18")
                assert waiting(tmp_path / "shop.db") == 2
                assert (await client.post("/orders/17/payment")).json() == {"in_time": True}
                assert waiting(tmp_path / "shop.db") == 1
            server.should_exit = True
            await serving

    asyncio.run(program())
