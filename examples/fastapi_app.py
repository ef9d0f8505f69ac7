"""Schedule a message in the request's transaction, in a FastAPI application.

Run it with `uvicorn examples.fastapi_app:app`; `DATABASE` and `BROKER` name the servers, by default a file and memory.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy import String
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from delaystore import AsyncDelayedDelivery, AsyncSqlDelayedMessageStore, ManagementOutcome
from delaystore.transports import open_transport

DATABASE = os.environ.get("DATABASE", "sqlite+aiosqlite:///shop.db")
BROKER = os.environ.get("BROKER", "memory://")


class Base(DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """An order, and the reminder that goes out unless it is paid."""

    __tablename__ = "orders"
    number: Mapped[str] = mapped_column(String(20), primary_key=True)
    reminder: Mapped[str] = mapped_column(String(36))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the dispatcher with the application, and stop it with it."""
    engine = create_async_engine(DATABASE)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    store = AsyncSqlDelayedMessageStore(DATABASE)
    async with AsyncDelayedDelivery("sales", store, open_transport(BROKER)) as delivery:
        app.state.delivery = delivery
        app.state.sessions = async_sessionmaker(engine)
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


def delivery_of(request: Request) -> AsyncDelayedDelivery:
    """A dependency: the application's delivery."""
    delivery: AsyncDelayedDelivery = request.app.state.delivery
    return delivery


async def transaction_of(request: Request) -> AsyncIterator[AsyncSession]:
    """A dependency: a session whose transaction is committed unless the request fails."""
    async with request.app.state.sessions.begin() as session:
        yield session


Delivery = Annotated[AsyncDelayedDelivery, Depends(delivery_of)]
# FastAPI sends the answer before a dependency ends, unless its scope is the function: the commit may yet fail
Transaction = Annotated[AsyncSession, Depends(transaction_of, scope="function")]


@app.post("/orders/{number}", status_code=201)
async def place(number: str, session: Transaction, delivery: Delivery) -> dict[str, str]:
    """Keep the order and schedule its reminder: both, or neither."""
    if await session.get(Order, number) is not None:
        raise HTTPException(409, "there is such an order already")
    reminder = await delivery.enlist(session).send("billing", number.encode(), delay=timedelta(days=3))
    session.add(Order(number=number, reminder=reminder))
    return {"reminder": reminder}


@app.post("/orders/{number}/payment")
async def pay(number: str, session: Transaction, delivery: Delivery) -> dict[str, bool]:
    """Cancel the reminder in the transaction of the payment."""
    order = await session.get(Order, number)
    if order is None:
        raise HTTPException(404, "there is no such order")
    outcome = await delivery.enlist(session).cancel(order.reminder)
    await session.delete(order)
    return {"in_time": outcome is ManagementOutcome.DONE}


@app.get("/health")
async def health(delivery: Delivery) -> dict[str, Any]:
    """Whether messages are stored and dispatched, and why not."""
    found = await delivery.health(1)
    return {"healthy": found.healthy, "problems": found.problems}
